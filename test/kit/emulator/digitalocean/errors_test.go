package digitalocean_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// account is what a row of the table works on: two droplets in one region, one in another, and a volume.
type account struct {
	t                   *testing.T
	cloud               *emulator.Cloud
	api                 *godo.Client
	first, second, away int
	volume              string
}

func (a account) create(name, region string, size int64) error {
	_, _, err := a.api.Storage.CreateVolume(a.t.Context(), &godo.VolumeCreateRequest{Name: name, Region: region, SizeGigaBytes: size})
	return err
}

func (a account) attach(volume string, droplet int) error {
	_, _, err := a.api.StorageActions.Attach(a.t.Context(), volume, droplet)
	return err
}

func (a account) resize(size int) error {
	_, _, err := a.api.StorageActions.Resize(a.t.Context(), a.volume, size, emulator.DefaultRegion)
	return err
}

func (a account) snapshot(name string) (*godo.Snapshot, error) {
	s, _, err := a.api.Storage.CreateSnapshot(a.t.Context(), &godo.SnapshotCreateRequest{VolumeID: a.volume, Name: name})
	return s, err
}

// last returns the last step's error; every step before it must succeed.
func (a account) last(steps ...error) error {
	a.t.Helper()
	for _, err := range steps[:len(steps)-1] {
		if err != nil {
			a.t.Fatal(err)
		}
	}
	return steps[len(steps)-1]
}

const nowhere = "00000000-0000-4000-8000-000000000000"

// TestRefusals has a row for each row of the real API's errors that a driver must tell apart.
func TestRefusals(t *testing.T) {
	const other = "nyc3"
	rows := []struct {
		name    string
		rules   emulator.Rules
		act     func(a account) error
		status  int
		message string
	}{
		{"a volume that is not there is not found", emulator.Rules{}, func(a account) error {
			_, _, err := a.api.Storage.GetVolume(a.t.Context(), nowhere)
			return err
		}, 404, "could not be found"},
		{"a snapshot that is not there is not found", emulator.Rules{}, func(a account) error {
			_, err := a.api.Storage.DeleteSnapshot(a.t.Context(), nowhere)
			return err
		}, 404, "could not be found"},
		{"an action that is not there is not found", emulator.Rules{}, func(a account) error {
			_, _, err := a.api.Actions.Get(a.t.Context(), 7)
			return err
		}, 404, "could not be found"},
		{"a droplet that is not there is not found", emulator.Rules{}, func(a account) error {
			return a.attach(a.volume, 7)
		}, 404, "could not be found"},
		{"deleting twice is not found", emulator.Rules{}, func(a account) error {
			_, err := a.api.Storage.DeleteVolume(a.t.Context(), a.volume)
			_, again := a.api.Storage.DeleteVolume(a.t.Context(), a.volume)
			return a.last(err, again)
		}, 404, "could not be found"},
		{"a name is taken in its region", emulator.Rules{}, func(a account) error {
			return a.last(a.create("pvc-1", other, 1), a.create("pvc-1", emulator.DefaultRegion, 1))
		}, 409, "already exists"},
		{"a volume is attached to the asked droplet already", emulator.Rules{}, func(a account) error {
			return a.last(a.attach(a.volume, a.first), a.attach(a.volume, a.first))
		}, 422, "This volume is already attached"},
		{"a volume is attached to another droplet", emulator.Rules{}, func(a account) error {
			return a.last(a.attach(a.volume, a.first), a.attach(a.volume, a.second))
		}, 422, "This volume is already attached"},
		{"a droplet with a running action takes no second one", emulator.Rules{}, func(a account) error {
			a.cloud.SetDurations(emulator.Actions(clock.Fixed(time.Hour)))
			next := mustCreate(a.t, a.api, "pvc-2")
			return a.last(a.attach(a.volume, a.first), a.attach(next.ID, a.first))
		}, 422, "Droplet already has a pending event"},
		{"a volume with a running action takes no second one", emulator.Rules{}, func(a account) error {
			a.cloud.SetDurations(emulator.Actions(clock.Fixed(time.Hour)))
			return a.last(a.resize(2), a.attach(a.volume, a.first))
		}, 422, "pending event"},
		{"a droplet is full", emulator.Rules{}, func(a account) error {
			for i := range 15 {
				v := mustCreate(a.t, a.api, fmt.Sprintf("full-%d", i))
				mustAttach(a.t, a.api, v.ID, a.first)
			}
			return a.attach(a.volume, a.first)
		}, 422, "cannot attach more volumes to the Droplet"},
		{"volume and droplet are in different regions", emulator.Rules{}, func(a account) error {
			return a.attach(a.volume, a.away)
		}, 422, "same region"},
		{"a free volume cannot be detached", emulator.Rules{}, func(a account) error {
			_, _, err := a.api.StorageActions.DetachByDropletID(a.t.Context(), a.volume, a.first)
			return err
		}, 422, "Attachment not found"},
		{"a volume cannot be detached from a droplet that it is not on", emulator.Rules{}, func(a account) error {
			_, _, err := a.api.StorageActions.DetachByDropletID(a.t.Context(), a.volume, a.second)
			return a.last(a.attach(a.volume, a.first), err)
		}, 422, "Attachment not found"},
		{"an attached volume cannot be deleted", emulator.Rules{}, func(a account) error {
			err := a.attach(a.volume, a.first)
			_, refused := a.api.Storage.DeleteVolume(a.t.Context(), a.volume)
			return a.last(err, refused)
		}, 409, "attached to a Droplet cannot be deleted"},
		{"a region has no volumes", emulator.Rules{}, func(a account) error {
			return a.create("pvc-2", "nyc2", 1)
		}, 422, "Storage is not supported for this region"},
		{"a region does not exist", emulator.Rules{}, func(a account) error {
			return a.create("pvc-2", "moon1", 1)
		}, 422, "region"},
		{"the account has no volume left", emulator.Rules{VolumeLimit: 1}, func(a account) error {
			return a.create("pvc-2", emulator.DefaultRegion, 1)
		}, 403, "capacity limit exceeded"},
		{"the account has no space left for a volume", emulator.Rules{CapacityLimit: 3}, func(a account) error {
			return a.create("pvc-2", emulator.DefaultRegion, 3)
		}, 403, "capacity limit exceeded"},
		{"the account has no space left to grow", emulator.Rules{CapacityLimit: 3}, func(a account) error {
			return a.last(a.resize(3), a.resize(4))
		}, 403, "capacity limit exceeded"},
		{"a droplet refuses that its volume grows", emulator.Rules{}, func(a account) error {
			a.cloud.RemoveDroplet(a.first, 0)
			a.cloud.AddDroplet(emulator.Droplet{ID: a.first, ResizeRefused: true})
			return a.last(a.resize(2), a.attach(a.volume, a.first), a.resize(3))
		}, 422, "Block Storage resizing is temporarily disabled for this Droplet"},
		{"every droplet refuses that its volume grows", emulator.Rules{ResizeRefused: true}, func(a account) error {
			return a.last(a.resize(2), a.attach(a.volume, a.first), a.resize(3))
		}, 422, "Block Storage resizing is temporarily disabled for this Droplet"},
		{"a volume never shrinks", emulator.Rules{}, func(a account) error {
			return a.last(a.resize(2), a.resize(2))
		}, 422, "larger"},
		{"a volume is too large", emulator.Rules{}, func(a account) error {
			return a.create("pvc-2", emulator.DefaultRegion, 16385)
		}, 422, "16384"},
		{"a volume is too small", emulator.Rules{}, func(a account) error {
			return a.create("pvc-2", emulator.DefaultRegion, 0)
		}, 422, "16384"},
		{"a name breaks the rule", emulator.Rules{}, func(a account) error {
			return a.create("Pvc_2", emulator.DefaultRegion, 1)
		}, 422, "lower case"},
		{"a name is too long", emulator.Rules{}, func(a account) error {
			return a.create(strings.Repeat("a", 65), emulator.DefaultRegion, 1)
		}, 422, "64"},
		{"a tag breaks the rule", emulator.Rules{}, func(a account) error {
			_, _, err := a.api.Storage.CreateVolume(a.t.Context(), &godo.VolumeCreateRequest{
				Name: "pvc-2", Region: emulator.DefaultRegion, SizeGigaBytes: 1, Tags: []string{"a=b"},
			})
			return err
		}, 422, "tag"},
		{"a tag that does not exist cannot be given", emulator.Rules{}, func(a account) error {
			_, err := a.api.Tags.TagResources(a.t.Context(), "new", &godo.TagResourcesRequest{
				Resources: []godo.Resource{{ID: a.volume, Type: godo.VolumeResourceType}},
			})
			return err
		}, 404, "could not be found"},
		{"a second snapshot comes too soon", emulator.Rules{SnapshotInterval: clock.Fixed(10 * time.Minute)}, func(a account) error {
			_, err := a.snapshot("s-1")
			_, again := a.snapshot("s-2")
			return a.last(err, again)
		}, 429, "failed to create snapshot: this operation is rate-limited - one request per 10m0s"},
		{"a volume has all the snapshots that it can have", emulator.Rules{SnapshotsPerVolume: 1}, func(a account) error {
			_, err := a.snapshot("s-1")
			_, again := a.snapshot("s-2")
			return a.last(err, again)
		}, 422, "snapshot limit"},
		{"a snapshot's name is taken", emulator.Rules{}, func(a account) error {
			_, err := a.snapshot("s-1")
			_, again := a.snapshot("s-1")
			return a.last(err, again)
		}, 409, "already exists"},
		{"a snapshot cannot become a volume in another region", emulator.Rules{}, func(a account) error {
			s, err := a.snapshot("s-1")
			_, _, refused := a.api.Storage.CreateVolume(a.t.Context(), &godo.VolumeCreateRequest{
				Name: "pvc-2", Region: other, SizeGigaBytes: 1, SnapshotID: s.ID,
			})
			return a.last(err, refused)
		}, 422, "region"},
		{"a snapshot that is not there cannot become a volume", emulator.Rules{}, func(a account) error {
			_, _, err := a.api.Storage.CreateVolume(a.t.Context(), &godo.VolumeCreateRequest{
				Name: "pvc-2", Region: emulator.DefaultRegion, SizeGigaBytes: 1, SnapshotID: nowhere,
			})
			return err
		}, 404, "could not be found"},
		{"the server fails", emulator.Rules{}, func(a account) error {
			a.cloud.Arm(emulator.Fault{Effect: faults.Effect{Status: 500}})
			return a.create("pvc-2", emulator.DefaultRegion, 1)
		}, 500, "Unexpected server-side error"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			c, api, first := start(t, emulator.Options{Droplets: 2, Rules: row.rules})
			a := account{t: t, cloud: c, api: api, first: first, second: c.Droplets()[1], away: c.AddDroplet(emulator.Droplet{Region: other})}
			a.volume = mustCreate(t, api, "pvc-1").ID
			refused := response(t, row.act(a))
			if refused.Response.StatusCode != row.status || !strings.Contains(refused.Message, row.message) || refused.RequestID == "" {
				t.Errorf("refusal = %v, want %d %q with a request id", refused, row.status, row.message)
			}
			if header := refused.Response.Header; header.Get("Retry-After") != "" {
				t.Errorf("Retry-After = %q, want none: this is no rate limit of the API", header.Get("Retry-After"))
			}
		})
	}
}

func TestARequestWithoutTheTokenIsUnauthorized(t *testing.T) {
	c := emulator.Start(t, emulator.Options{})
	c.Token = "another"
	_, resp, err := client(t, c).Regions.List(t.Context(), nil)
	if err == nil || resp.StatusCode != http.StatusUnauthorized || !strings.Contains(err.Error(), "Unable to authenticate you") {
		t.Errorf("Regions.List() with a wrong token = %v, want 401", err)
	}
}

// TestErrorBodies looks at what the SDK does not show: the machine-readable id.
func TestErrorBodies(t *testing.T) {
	c := emulator.Start(t, emulator.Options{})
	for path, want := range map[string]string{
		"/v2/volumes/" + nowhere: `{"id":"not_found","message":"The resource you requested could not be found.","request_id":"`,
		"/v2/nothing":            `{"id":"not_found","message":"The resource you requested could not be found.","request_id":"`,
	} {
		if status, body := get(t, c, path); status != http.StatusNotFound || !strings.HasPrefix(body, want) {
			t.Errorf("GET %s = %d %s, want 404 %s...", path, status, body, want)
		}
	}
}

// get asks for a path with the token and without the SDK.
func get(t *testing.T, c *emulator.Cloud, path string) (int, string) {
	t.Helper()
	return call(t, c, http.MethodGet, path, "")
}

func call(t *testing.T, c *emulator.Cloud, method, path, body string) (int, string) {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, c.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: bearer{c.Token, transport}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}
