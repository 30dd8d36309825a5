package digitalocean_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
)

// C7: the first acceptable region that has volumes is taken.
func TestARegionWithoutVolumesIsPassedOver(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	req := request("a")
	req.Zones = []string{"nyc2", "nowhere9", "ams3", "fra1"}
	vol, err := c.CreateVolume(t.Context(), req)
	if err != nil || vol.Zone != "ams3" {
		t.Errorf("CreateVolume = %+v, %v, want it in ams3", vol, err)
	}
	req.Name, req.Zones = "b", []string{"nyc2"}
	_, err = c.CreateVolume(t.Context(), req)
	want(t, err, fault.Exhausted, "nyc2")
}

// C12: a volume of that name that this driver did not make for this cluster is never handed out.
func TestAForeignVolumeOfTheNameIsNeverHandedOut(t *testing.T) {
	for name, tags := range map[string][]string{
		"somebody's own": nil, "another cluster's": {"cloudblock-cluster:two", "cloudblock-name-hash:" + cloud.FullHash("a")},
		"another request's": {"cloudblock-cluster:one", "cloudblock-name-hash:" + cloud.FullHash("b")},
	} {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{})
			_, err := account.AddVolume(emulator.Volume{Name: "a", SizeGiB: 1, Region: emulator.DefaultRegion, Tags: tags})
			must(t, err)
			vol, err := stack(open(t, account)).CreateVolume(t.Context(), request("a"))
			if err == nil {
				t.Errorf("CreateVolume = %+v", vol)
			}
			want(t, err, fault.Conflict)
		})
	}
}

// P5: a list is complete although entries go away between its pages, or it is an error.
func TestAListThatChangesBetweenItsPagesIsComplete(t *testing.T) {
	account := start(t, emulator.Options{})
	var ids []string
	for n := range 401 {
		id, err := account.AddVolume(emulator.Volume{Name: fmt.Sprintf("v%d", n), SizeGiB: 1, Region: emulator.DefaultRegion})
		must(t, err)
		ids = append(ids, id)
	}
	deleter := open(t, account)
	removed := map[string]bool{}
	c := open(t, account, func(cfg *digitalocean.Config) {
		base, reads := cfg.Transport, 0
		cfg.Transport = roundTripper(func(r *httpRequest) (*httpResponse, error) {
			res, err := base.RoundTrip(r) //nolint:bodyclose // whoever asked closes it
			// After each page, but for the last few, the oldest and the newest volume go away.
			if reads++; strings.HasSuffix(r.URL.Path, "/v2/volumes") && reads <= 4 {
				for _, id := range []string{ids[0], ids[len(ids)-1]} {
					if err := deleter.DeleteVolume(t.Context(), cloud.VolumeID(id)); err != nil {
						t.Error(err)
					}
					removed[id] = true
				}
				ids = ids[1 : len(ids)-1]
			}
			return res, err
		})
	})
	list, err := c.ListVolumes(t.Context(), cloud.Page{})
	must(t, err)
	seen := map[string]bool{}
	for _, vol := range list.Volumes {
		seen[string(vol.ID)] = true
	}
	for _, id := range ids {
		if !seen[id] {
			t.Errorf("the list of %d lacks %s", len(list.Volumes), id)
		}
	}
}
