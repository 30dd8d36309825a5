package digitalocean

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
)

// A1: a running action is found in whatever order the cloud lists those of a volume.
func TestARunningActionIsFoundInAnyOrder(t *testing.T) {
	const id, total, running = cloud.VolumeID("11111111-1111-1111-1111-111111111111"), 2*perPage + 7, 2*perPage + 7
	newest := func(n int) int { return total - n }
	for name, order := range map[string]func(n int) int{
		"oldest first": func(n int) int { return n + 1 },
		"newest first": newest,
		"in no order":  func(n int) int { return newest(n ^ 1) },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := New(t.Context(), Config{
				Config: block.Config{Token: func() (string, error) { return "token", nil }, Region: "fra1", ClusterID: "one", SweepEvery: -1},
				Transport: cloudtest.RoundTripper(func(r *http.Request) (*http.Response, error) {
					page := 0
					_, _ = fmt.Sscan(r.URL.Query().Get("page"), &page)
					var entries []string
					for n := (page - 1) * perPage; n < min(page*perPage, total); n++ {
						act := order(n)
						status := map[bool]string{true: "in-progress", false: "completed"}[act == running]
						entries = append(entries, fmt.Sprintf(`{"id":%d,"status":%q}`, act, status))
					}
					links := ""
					if page*perPage < total {
						links = fmt.Sprintf(`"pages":{"next":"https://api.example/?page=%d"}`, page+1)
					}
					text := fmt.Sprintf(`{"actions":[%s],"links":{%s},"meta":{"total":%d}}`, strings.Join(entries, ","), links, total)
					return cloudtest.Answer(r, http.StatusOK, "application/json", text), nil
				}),
			})
			cloudtest.Must(t, err)
			cloudtest.CloseAfter(t, c.Close)
			found, err := tracker{c}.Running(t.Context(), c.VolumeKey(id))
			cloudtest.Must(t, err)
			var ids []string
			for _, op := range found {
				ids = append(ids, op.ID)
			}
			if want := []string{fmt.Sprint(running)}; !slices.Equal(ids, want) {
				t.Errorf("running are %q, want %q", ids, want)
			}
		})
	}
}
