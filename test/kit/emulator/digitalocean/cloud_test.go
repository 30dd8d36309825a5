package digitalocean_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var waitFor = expect.Eventually

// bearer adds the token to each request.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// client returns the real SDK, pointed at the emulated account.
func client(t *testing.T, c *emulator.Cloud) *godo.Client {
	t.Helper()
	next := c.Client().Transport
	if !strings.HasSuffix(c.URL, ".invalid") {
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		next = transport
	}
	api, err := godo.New(&http.Client{Transport: bearer{c.Token, next}}, godo.SetBaseURL(c.URL+"/"))
	must(t, err)
	return api
}

// start starts an account with one droplet.
func start(t *testing.T, opts emulator.Options) (*emulator.Cloud, *godo.Client, int) {
	t.Helper()
	opts.Droplets = max(opts.Droplets, 1)
	c := emulator.Start(t, opts)
	return c, client(t, c), c.Droplets()[0]
}

func mustCreate(t *testing.T, api *godo.Client, name string, change ...func(*godo.VolumeCreateRequest)) *godo.Volume {
	t.Helper()
	req := &godo.VolumeCreateRequest{Name: name, Region: emulator.DefaultRegion, SizeGigaBytes: 1}
	for _, f := range change {
		f(req)
	}
	v, _, err := api.Storage.CreateVolume(t.Context(), req)
	if err != nil {
		t.Fatalf("CreateVolume(%s) = %v", name, err)
	}
	return v
}

func mustAttach(t *testing.T, api *godo.Client, volume string, droplet int) *godo.Action {
	t.Helper()
	a, _, err := api.StorageActions.Attach(t.Context(), volume, droplet)
	if err != nil {
		t.Fatalf("Attach(%s, %d) = %v", volume, droplet, err)
	}
	return a
}

func TestAVolumeLivesFromCreateToDelete(t *testing.T) {
	c, api, droplet := start(t, emulator.Options{Durations: emulator.Actions(clock.Fixed(20 * time.Millisecond))})
	ctx := t.Context()
	v := mustCreate(t, api, "pvc-1", func(r *godo.VolumeCreateRequest) { r.Tags = []string{"a:b"} })
	if v.Region.Slug != emulator.DefaultRegion || len(v.DropletIDs) != 0 || v.SizeGigaBytes != 1 || v.CreatedAt.IsZero() {
		t.Errorf("CreateVolume() = %+v", v)
	}

	a := mustAttach(t, api, v.ID, droplet)
	if a.Status != godo.ActionInProgress || a.Type != "attach_volume" || a.CompletedAt != nil || a.ID == 0 {
		t.Errorf("Attach() = %+v, want an action in progress", a)
	}
	if now, _, err := api.Storage.GetVolume(ctx, v.ID); err != nil || len(now.DropletIDs) != 0 {
		t.Errorf("GetVolume() = %+v, %v, want it free while the action is running", now, err)
	}
	waitFor(t, "the attach has completed", func() bool {
		now, _, err := api.Actions.Get(ctx, a.ID)
		return err == nil && now.Status == godo.ActionCompleted && now.CompletedAt != nil
	})
	now, _, err := api.Storage.GetVolume(ctx, v.ID)
	if err != nil || len(now.DropletIDs) != 1 || now.DropletIDs[0] != droplet {
		t.Errorf("GetVolume() = %+v, %v, want it on droplet %d", now, err, droplet)
	}
	machine, _, err := api.Droplets.Get(ctx, droplet)
	if err != nil || len(machine.VolumeIDs) != 1 || machine.VolumeIDs[0] != v.ID {
		t.Errorf("Droplets.Get() = %+v, %v, want volume %s on it", machine, err, v.ID)
	}

	if _, _, err := api.StorageActions.Resize(ctx, v.ID, 2, emulator.DefaultRegion); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the volume has grown", func() bool {
		now, _, err := api.Storage.GetVolume(ctx, v.ID)
		return err == nil && now.SizeGigaBytes == 2
	})
	if _, _, err := api.StorageActions.DetachByDropletID(ctx, v.ID, droplet); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the volume is free", func() bool {
		now, _, err := api.Storage.GetVolume(ctx, v.ID)
		return err == nil && len(now.DropletIDs) == 0
	})
	if actions, _, err := api.StorageActions.List(ctx, v.ID, nil); err != nil || len(actions) != 3 || actions[0].Type != "detach_volume" {
		t.Errorf("actions of the volume = %+v, %v, want 3, the newest first", actions, err)
	}
	if _, err := api.Storage.DeleteVolume(ctx, v.ID); err != nil {
		t.Fatal(err)
	}
	if _, resp, err := api.Storage.GetVolume(ctx, v.ID); err == nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("GetVolume() of a deleted one = %v, want 404", err)
	}
	var kinds []string
	for _, op := range c.Operations() {
		kinds = append(kinds, op.Kind)
		if op.VolumeName != "pvc-1" || op.Finished.Before(op.Accepted) || op.Status != "completed" {
			t.Errorf("operation %+v, want one of pvc-1 that has ended", op)
		}
	}
	if got := strings.Join(kinds, " "); got != "create_volume attach_volume resize detach_volume delete_volume" {
		t.Errorf("operations = %s", got)
	}
	if stats := c.Stats(); stats.Writes != 5 || stats.Routes["POST /v2/volumes/{volume_id}/actions"] != 3 || stats.MaxParallel[droplet] != 1 {
		t.Errorf("Stats() = %+v, want 5 writes, 3 of them actions, one at a time", stats)
	}
}

func TestAnAccountIsReachedOverTLS(t *testing.T) {
	c := emulator.Start(t, emulator.Options{Durations: emulator.Actions(clock.Fixed(0))})
	url, authority, err := c.ListenTLS(t.Context(), "127.0.0.1:0", "127.0.0.1")
	must(t, err)
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authority) {
		t.Fatalf("the authority is no PEM: %s", authority)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}
	t.Cleanup(transport.CloseIdleConnections)
	resp, err := (&http.Client{Transport: bearer{c.Token, transport}}).Get(url + "/v2/regions?per_page=1")
	must(t, err)
	defer resp.Body.Close()
	var list struct {
		Links struct{ Pages struct{ Next string } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || !strings.HasPrefix(list.Links.Pages.Next, url) {
		t.Errorf("next = %q, %v, want it below %s", list.Links.Pages.Next, err, url)
	}
}

// response returns what the SDK understood of a refusal.
func response(t *testing.T, err error) *godo.ErrorResponse {
	t.Helper()
	var refused *godo.ErrorResponse
	if !errors.As(err, &refused) {
		t.Fatalf("error = %v, want the API's refusal", err)
	}
	return refused
}
