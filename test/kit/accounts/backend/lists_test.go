package backend

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
)

// P5, P1: what a list of a large account costs, in the account's own pages. It is complete, also while
// volumes come and go between its pages.
func TestWhatALongListCosts(t *testing.T) {
	for _, name := range accounts.Names() {
		t.Run(name, func(t *testing.T) {
			sizes := []int{5000, 20_000}
			if testing.Short() {
				sizes = sizes[:1]
			}
			for _, size := range sizes {
				synctest.Test(t, func(t *testing.T) { listAll(t, name, size) }) // the limits of the cloud hold
			}
		})
	}
}

func listAll(t *testing.T, name string, size int) {
	a, err := accounts.Start(name, accounts.Options{})
	cloudtest.Must(t, err)
	var ids []string
	for n := range size {
		id, err := a.AddVolume(accounts.Volume{Name: fmt.Sprintf("volume-%d", n)})
		cloudtest.Must(t, err)
		ids = append(ids, id)
	}
	moving := false
	way := a.Memory()
	if base := way.Web; base != nil {
		way.Web = cloudtest.Before(base, func(*http.Request) {
			if moving {
				cloudtest.Must(t, a.DeleteVolume(ids[0]))
				_, err := a.AddVolume(accounts.Volume{Name: "new-" + ids[0]})
				cloudtest.Must(t, err)
				ids = ids[1:]
			}
		})
	}
	b, err := Open(t.Context(), a, Config{Way: way, ClusterID: "one", SweepEvery: -1})
	cloudtest.Must(t, err)
	list := func(most int) (reads int) {
		a.ResetStats()
		there, page := map[cloud.VolumeID]bool{}, cloud.Page{Most: most}
		for {
			list, err := b.ListVolumes(t.Context(), page)
			cloudtest.Must(t, err)
			for _, vol := range list.Volumes {
				there[vol.ID] = true
			}
			if page.Token = list.Next; page.Token == "" {
				break
			}
		}
		for _, id := range ids {
			if !there[cloud.VolumeID(id)] {
				t.Fatalf("the list of %d lacks %s", len(there), id)
			}
		}
		return a.Stats().Reads
	}
	const parts = 5
	most, pages, bar := size/parts, (size+perPage[name]-1)/perPage[name], 1.2
	partBar := most*6/5/perPage[name] + 2 // it begins on a page that the part before has read, and looks behind its end
	if name == "yandex" {                 // what its tokens stand for is not documented, so each list is read twice, and for each part whole
		bar, partBar = 2, 2*pages
	}
	check := func(state string) {
		whole, some := list(0), list(most)
		t.Logf("%d volumes, %s: %d reads for %d pages; in parts of %d: %d reads for %d parts", size, state, whole, pages, most, some, parts)
		if float64(whole) > bar*float64(pages)+1 {
			t.Errorf("%d reads for %d pages, want at most %g times as many", whole, pages, bar)
		}
		if some > parts*partBar {
			t.Errorf("%d reads for %d parts of %d volumes, want at most %d for each", some, parts, most, partBar)
		}
	}
	check("at rest")
	if moving = way.Web != nil; moving {
		check("while volumes come and go")
	}
	cloudtest.Must(t, b.Close(t.Context()))
	cloudtest.Must(t, a.Close())
}

// perPage is the largest page of each cloud.
var perPage = map[string]int{"digitalocean": 200, "linode": 500, "yandex": 1000}
