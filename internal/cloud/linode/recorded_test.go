package linode_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// newest are the recordings of the API of 2026.
var newest = []string{
	"TestIAM_GetIOReadyForNotAttachedVolume", "TestIAM_GetIOReadyForResizedVolume", "TestIAM_GetIOReadyForUpdatedVolume", "TestVolume_Update",
}

// onRecordings returns a backend whose API has nothing but these recordings.
func onRecordings(t *testing.T, fail func(string, ...any), names ...string) (*linode.Cloud, *recording) {
	t.Helper()
	account := start(t, emulator.Options{})
	api, err := newRecording(fail, account.Client().Transport, names...)
	must(t, err)
	return open(t, account, func(cfg *linode.Config) { cfg.Transport, cfg.Region, cfg.SweepEvery = api, "gb-lon", -1 }), api
}

// lifetime is a life of a volume that was recorded.
type lifetime struct {
	t   *testing.T
	c   *linode.Cloud
	api *recording
}

func (l lifetime) create(name string) cloud.Volume {
	l.t.Helper()
	vol := create(l.t, l.c, cloud.CreateVolumeRequest{Name: name, Size: 30 * cloud.GiB, Zones: []string{"gb-lon"}})
	if vol.Name != name || vol.Size != 30*cloud.GiB || vol.Zone != "gb-lon" {
		l.t.Errorf("CreateVolume = %+v", vol)
	}
	return vol
}

func (l lifetime) attach(id cloud.VolumeID, label string) {
	l.t.Helper()
	dev, err := l.c.Attach(l.t.Context(), id, node1)
	if want := (cloud.Device{Name: "scsi-0Linode_Volume_" + label, Serial: label}); err != nil || dev != want {
		l.t.Errorf("Attach = %+v, %v, want %+v", dev, err, want)
	}
	l.at(id, node1)
}

func (l lifetime) detach(id cloud.VolumeID) {
	l.t.Helper()
	must(l.t, l.c.Detach(l.t.Context(), id, node1))
	l.at(id)
}

func (l lifetime) at(id cloud.VolumeID, nodes ...cloud.NodeID) {
	l.t.Helper()
	vol, err := l.c.GetVolume(l.t.Context(), id)
	if err != nil || !slices.Equal(vol.AttachedTo, nodes) {
		l.t.Errorf("GetVolume = %+v, %v, want it at %v", vol, err, nodes)
	}
}

func (l lifetime) expandAttached(id cloud.VolumeID) {
	l.t.Helper()
	got, err := l.c.ExpandVolume(l.t.Context(), id, 40*cloud.GiB)
	if want := (cloud.Expansion{Size: 40 * cloud.GiB, NodeMustConfirm: true}); err != nil || got != want {
		l.t.Errorf("ExpandVolume = %+v, %v, want %+v", got, err, want)
	}
}

func (l lifetime) delete(id cloud.VolumeID) {
	l.t.Helper()
	must(l.t, l.c.DeleteVolume(l.t.Context(), id))
}

// post sends a request that the backend does not send.
func (l lifetime) post(path, body string) {
	l.t.Helper()
	res, err := l.api.RoundTrip(httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	must(l.t, err)
	must(l.t, res.Body.Close())
}

// refusesDelete fails the test if a delete of an attached volume is sent, which the real API would do.
func (l lifetime) refusesDelete(id cloud.VolumeID) {
	l.t.Helper()
	want(l.t, l.c.DeleteVolume(l.t.Context(), id), fault.Precondition, "attached to Linode")
	if n := l.api.requests["DELETE /volumes/{volume}"]; n != 0 {
		l.t.Errorf("%d deletes of an attached volume were sent", n)
	}
}

// lives are what the backend does, in an order that was recorded.
var lives = map[string]func(l lifetime){
	"a volume is created, listed and deleted": func(l lifetime) {
		must(l.t, l.c.CheckRegion(l.t.Context()))
		vol := l.create("ab")
		must(l.t, l.c.Check(l.t.Context()))
		list, err := l.c.ListVolumes(l.t.Context(), cloud.Page{})
		if err != nil || len(list.Volumes) != 1 || list.Volumes[0].ID != vol.ID || list.Volumes[0].Name != "ab" {
			l.t.Errorf("ListVolumes = %+v, %v, want the volume %s", list, err, vol.ID)
		}
		l.delete(vol.ID)
	},
	"a volume is attached and detached": func(l lifetime) {
		vol := l.create("ab")
		l.attach(vol.ID, "ab")
		l.detach(vol.ID)
		l.delete(vol.ID)
	},
	"a volume grows while it is attached": func(l lifetime) {
		vol := l.create("ab")
		l.attach(vol.ID, "ab")
		l.expandAttached(vol.ID)
		l.detach(vol.ID)
		l.delete(vol.ID)
	},
	"a volume is copied while it is attached": func(l lifetime) {
		vol := l.create("ab")
		l.attach(vol.ID, "ab")
		req := copyOf("cd", vol.ID)
		req.Zones = []string{vol.Zone}
		clone := create(l.t, l.c, req)
		if clone.Name != "cd" || clone.Size != vol.Size || clone.Zone != vol.Zone || fmt.Sprint(clone.Parameters) != "[{encrypted true}]" {
			l.t.Errorf("CreateVolume of a copy = %+v", clone)
		}
		l.delete(clone.ID)
		l.detach(vol.ID)
		l.delete(vol.ID)
	},
	"an attached volume is not deleted": func(l lifetime) {
		vol := l.create("ab")
		l.attach(vol.ID, "ab")
		l.refusesDelete(vol.ID)
	},
}

// generations are the older shapes of a volume, by the number of its fields, and what their recordings let the backend do.
var generations = map[string]struct {
	names []string
	live  func(l lifetime)
}{
	"14 fields, without locks": {[]string{"TestInstance_Config_VolumeLimitExtension"}, createAndDelete},
	"13 fields, attached: without io_ready no attach is known to have ended": {[]string{"TestVolume_WaitForLinodeID_volume", "TestVolume_Get"}, func(l lifetime) {
		vol := l.create("ab")
		_, err := l.c.Attach(l.t.Context(), vol.ID, node1)
		want(l.t, err, fault.Unavailable, "has not done it")
		l.refusesDelete(vol.ID)
	}},
}

func createAndDelete(l lifetime) { l.delete(l.create("ab").ID) }

// The backend does its work with an API that has nothing but recorded exchanges.
func TestTheBackendWorksWithWhatWasRecorded(t *testing.T) {
	asked := map[string]bool{}
	play := func(name string, names []string, live func(lifetime)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, api := onRecordings(t, t.Errorf, names...)
				live(lifetime{t, c, api})
				for part := range api.parts {
					asked[part] = true
				}
			})
		})
	}
	for name, live := range lives {
		play(name, newest, live)
	}
	for name, g := range generations {
		play(name, g.names, g.live)
	}
	for part, of := range notRecorded {
		if !asked[part] {
			t.Errorf("%s is not asked for any more: %s", part, of.why)
		}
	}
}

// A request that was never recorded fails the test that sends it, and is named by its route.
func TestARequestThatWasNotRecordedFails(t *testing.T) {
	for name, tc := range map[string]struct {
		does func(l lifetime)
		want string
	}{
		"an attach after a detach": {func(l lifetime) {
			vol := l.create("ab")
			l.attach(vol.ID, "ab")
			l.detach(vol.ID)
			_, err := l.c.Attach(l.t.Context(), vol.ID, node2)
			want(l.t, err, fault.InvalidArgument, "not recorded")
		}, "no recording has POST /volumes/{volume}/attach of made attach detach"},
		"a list before there is a volume": {func(l lifetime) {
			_, err := l.c.ListVolumes(l.t.Context(), cloud.Page{})
			want(l.t, err, fault.InvalidArgument, "not recorded")
		}, "no recording has GET /volumes with no volume"},
		"a route": {func(l lifetime) {
			l.post("/v4/tags", "{}")
		}, "no recording has POST /tags with no volume"},
		"a field": {func(l lifetime) {
			l.post("/v4/volumes", `{"label": "ab", "config_id": 7}`)
		}, "no recording has POST /volumes, config_id"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said []string
				c, api := onRecordings(t, func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }, newest...)
				tc.does(lifetime{t, c, api})
				if !slices.Contains(said, tc.want) {
					t.Errorf("the failures are %s, want %q", strings.Join(said, "; "), tc.want)
				}
			})
		})
	}
}
