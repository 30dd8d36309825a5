package digitalocean_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// account is what a row of the table works on: a droplet and a volume.
type account struct {
	t      *testing.T
	cloud  *emulator.Cloud
	api    *godo.Client
	first  int
	volume string
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

const nowhere = "00000000-0000-4000-8000-000000000000"

// TestRefusals has a row for each of the real API's errors that the tests of the backend do not meet, or pass without.
func TestRefusals(t *testing.T) {
	rows := []struct {
		name    string
		rules   emulator.Rules
		act     func(a account) error
		status  int
		message string
	}{
		{"an action that is not there is not found", emulator.Rules{}, func(a account) error {
			_, _, err := a.api.Actions.Get(a.t.Context(), 7)
			return err
		}, 404, "could not be found"},
		{"a droplet that is not there is not found", emulator.Rules{}, func(a account) error {
			return a.attach(a.volume, 7)
		}, 404, "could not be found"},
		{"deleting twice is not found", emulator.Rules{}, func(a account) error {
			_, err := a.api.Storage.DeleteVolume(a.t.Context(), a.volume)
			expect.NoError(a.t, err)
			_, err = a.api.Storage.DeleteVolume(a.t.Context(), a.volume)
			return err
		}, 404, "could not be found"},
		{"a name is taken in its region", emulator.Rules{}, func(a account) error {
			expect.NoError(a.t, a.create("pvc-1", "nyc3", 1))
			return a.create("pvc-1", emulator.DefaultRegion, 1)
		}, 409, "already exists"},
		{"a droplet with a running action takes no second one", emulator.Rules{}, func(a account) error {
			a.cloud.SetDurations(emulator.Actions(clock.Fixed(time.Hour)))
			next := mustCreate(a.t, a.api, "pvc-2")
			expect.NoError(a.t, a.attach(a.volume, a.first))
			return a.attach(next.ID, a.first)
		}, 422, "Droplet already has a pending event"},
		{"a volume with a running action takes no second one", emulator.Rules{}, func(a account) error {
			a.cloud.SetDurations(emulator.Actions(clock.Fixed(time.Hour)))
			expect.NoError(a.t, a.resize(2))
			return a.attach(a.volume, a.first)
		}, 422, "pending event"},
		{"a region does not exist", emulator.Rules{}, func(a account) error {
			return a.create("pvc-2", "moon1", 1)
		}, 422, "region"},
		{"the account has no volume left", emulator.Rules{VolumeLimit: 1}, func(a account) error {
			return a.create("pvc-2", emulator.DefaultRegion, 1)
		}, 403, "capacity limit exceeded"},
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
			c, api, first := start(t, emulator.Options{Rules: row.rules})
			a := account{t: t, cloud: c, api: api, first: first}
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
	answer := expect.Fetch(t, http.MethodGet, c.URL+path, "", "Authorization", "Bearer "+c.Token)
	return answer.Status, answer.Body
}
