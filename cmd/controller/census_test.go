package main

import (
	"crypto/rand"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
)

// The volumes of the account are counted in the lists that the attacher asks for: no request is sent for the metrics. The number of
// series does not depend on the number of volumes.
func TestMetricsCountTheVolumesOfLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := memory.NewAccount(memory.Config{})
		one, other := account.Cluster("one"), account.Cluster("other")
		var ours cloud.Volume
		for _, c := range []cloud.Cloud{one, one, one, other} {
			v, err := c.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: rand.Text(), Size: 2 * cloud.GiB})
			ok(t, err)
			if c == one {
				ours = v
			}
		}
		registry := prometheus.NewRegistry()
		counting := newCensus(one, "one")
		ok(t, register(registry, counting))
		samples := func() metrics.Samples { return metrics.Of(t, registry) }
		if got := samples(); len(got) > 0 {
			t.Errorf("before the first list: %v, want no samples", got)
		}
		_, err := counting.ListVolumes(t.Context(), cloud.Page{})
		ok(t, err)
		_, err = one.Attach(t.Context(), ours.ID, "node-1")
		ok(t, err)
		if _, err = counting.ListVolumes(t.Context(), cloud.Page{Most: 1}); err != nil {
			t.Fatal(err)
		}
		const gib = 1 << 30
		want := metrics.Samples{}
		for _, whose := range []string{"this", "another", "unknown"} {
			for _, attached := range []string{"true", "false"} {
				labels := `{attached="` + attached + `",owner="` + whose + `"}`
				want["cloudblock_cloud_volumes"+labels], want["cloudblock_cloud_volumes_bytes"+labels] = 0, 0
			}
		}
		want[`cloudblock_cloud_volumes{attached="false",owner="this"}`], want[`cloudblock_cloud_volumes_bytes{attached="false",owner="this"}`] = 3, 6*gib
		want[`cloudblock_cloud_volumes{attached="false",owner="another"}`], want[`cloudblock_cloud_volumes_bytes{attached="false",owner="another"}`] = 1, 2*gib
		if got := samples(); !maps.Equal(got, want) {
			t.Errorf("a page of several counts: %v, want what the whole list said: %v", got, want)
		}
		_, err = counting.ListVolumes(t.Context(), cloud.Page{})
		ok(t, err)
		want[`cloudblock_cloud_volumes{attached="false",owner="this"}`], want[`cloudblock_cloud_volumes_bytes{attached="false",owner="this"}`] = 2, 4*gib
		want[`cloudblock_cloud_volumes{attached="true",owner="this"}`], want[`cloudblock_cloud_volumes_bytes{attached="true",owner="this"}`] = 1, 2*gib
		if got := samples(); !maps.Equal(got, want) {
			t.Errorf("after an attach: %v, want %v", got, want)
		}
		time.Sleep(listedFor + time.Second)
		if got := samples(); len(got) > 0 {
			t.Errorf("%s after the list: %v, want no samples", listedFor, got)
		}
	})
}
