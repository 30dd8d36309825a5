//go:build e2e

package monitoring

import (
	"fmt"
	"net/http"
	"sync"
)

// others shows what the sidecars and the kubelet show, of which each scrape sees one more call.
type others struct {
	mu          sync.Mutex
	failing     bool
	good, wrong int
	more        string
}

// show adds series.
func (o *others) show(series string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.more = series
}

func (o *others) fail(is bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failing = is
}

func (o *others) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failing {
		o.wrong++
	} else {
		o.good++
	}
	for _, name := range []string{"csi_sidecar_operations_seconds", "csi_operations_seconds"} {
		fmt.Fprintf(w, "# TYPE %s histogram\n", name)
		for code, n := range map[string]int{"OK": o.good, "Unavailable": o.wrong} {
			labels := fmt.Sprintf(`driver_name="dobs.csi.digitalocean.com",method_name="/csi.v1.Controller/CreateVolume",grpc_status_code=%q`, code)
			fmt.Fprintf(w, "%s_bucket{%s,le=\"1\"} %d\n%s_bucket{%s,le=\"+Inf\"} %d\n%s_sum{%s} %d\n%s_count{%s} %d\n",
				name, labels, n, name, labels, n, name, labels, n, name, labels, n)
		}
	}
	fmt.Fprint(w, o.more, "# TYPE kubelet_volume_stats_available_bytes gauge\nkubelet_volume_stats_available_bytes{namespace=\"a\",persistentvolumeclaim=\"b\"} 1\n",
		"# TYPE kubelet_volume_stats_capacity_bytes gauge\nkubelet_volume_stats_capacity_bytes{namespace=\"a\",persistentvolumeclaim=\"b\"} 4\n")
}
