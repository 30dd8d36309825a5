package linode_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

const volumes = "/{apiVersion}/volumes"

// TestOddAnswers has the answers that the official SDK understands in ways of its own.
func TestOddAnswers(t *testing.T) {
	get := emulator.Fault{Method: http.MethodGet, Route: volumes + "/{volumeId}"}
	for _, row := range []struct {
		name   string
		effect faults.Effect
		is     func(*linodego.Volume, error) bool
	}{
		{"a page of a gateway", faults.Effect{Status: http.StatusBadGateway}, func(_ *linodego.Volume, err error) bool {
			var value linodego.Error
			return errors.As(err, &value)
		}},
		{"an error without errors", faults.Effect{Status: http.StatusBadRequest, ID: emulator.NoErrors}, func(v *linodego.Volume, err error) bool {
			return err == nil && v.ID == 0
		}},
		{"maintenance", faults.Effect{Status: http.StatusServiceUnavailable, Header: map[string]string{"X-Maintenance-Mode": "On"}}, func(_ *linodego.Volume, err error) bool {
			return linodego.ErrHasStatus(err, http.StatusServiceUnavailable)
		}},
		{"a busy Linode", faults.Effect{Status: http.StatusBadRequest, Message: "Linode busy."}, func(_ *linodego.Volume, err error) bool {
			return linodego.ErrHasStatus(err, http.StatusBadRequest) && strings.Contains(err.Error(), "Linode busy.")
		}},
		{"an error of a field", faults.Effect{Status: http.StatusBadRequest, ID: "size", Message: "too odd"}, func(_ *linodego.Volume, err error) bool {
			return linodego.ErrHasStatus(err, http.StatusBadRequest) && strings.Contains(err.Error(), "[size] too odd")
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, api, _ := start(t, emulator.Options{})
			v := mustCreate(t, api, "pvc-1")
			fault := get
			fault.Times, fault.Effect = 1, row.effect
			c.Arm(fault)
			if got, err := api.GetVolume(t.Context(), v.ID); !row.is(got, err) {
				t.Errorf("GetVolume() = %+v, %#v", got, err)
			}
			mustSee(t, api, v.ID)
		})
	}
}

func TestAnOperationCanFail(t *testing.T) {
	errored := faults.Effect{Errored: true}
	c, api, linode := start(t, emulator.Options{})
	ctx := t.Context()
	strike := func(method, route string) {
		c.Arm(emulator.Fault{Method: method, Route: route, Times: 1, Effect: errored})
	}
	strike(http.MethodPost, volumes)
	broken := mustCreate(t, api, "pvc-1")
	v := mustCreate(t, api, "pvc-2")
	strike(http.MethodPost, volumes+"/{volumeId}/attach")
	mustAttach(t, api, v.ID, linode)
	for id, want := range map[int]string{broken.ID: "contact_support", v.ID: "active"} {
		if got := stands(mustSee(t, api, id)); got != want {
			t.Errorf("volume %d is %q, want %q", id, got, want)
		}
	}
	mustAttach(t, api, v.ID, linode)
	strike(http.MethodPost, volumes+"/{volumeId}/detach")
	strike(http.MethodPost, volumes+"/{volumeId}/resize")
	if err := errors.Join(api.DetachVolume(ctx, v.ID), api.ResizeVolume(ctx, v.ID, 20)); err != nil {
		t.Fatal(err)
	}
	if now := mustSee(t, api, v.ID); stands(now) != "active attached ready" || now.Size != 10 {
		t.Errorf("volume is %q with %d GiB after a failed detach and resize, want it as it was", stands(now), now.Size)
	}
	strike(http.MethodDelete, volumes+"/{volumeId}")
	if err := api.DeleteVolume(ctx, broken.ID); err != nil {
		t.Fatal(err)
	}
	mustSee(t, api, broken.ID)
}

// A delete cancels what is under way. If it fails, the volume stays as what was canceled has left it, and in no status
// that nothing ends.
func TestAFailedDeleteLeavesNothingUnderWay(t *testing.T) {
	lasts := emulator.Each(clock.Fixed(10 * time.Second))
	simulated(t, emulator.Options{Durations: lasts}, func(t *testing.T, c *emulator.Cloud, api *linodego.Client, _ int) {
		c.Arm(emulator.Fault{Method: http.MethodDelete, Effect: faults.Effect{Errored: true}})
		deleted := func(id int, want string) {
			t.Helper()
			if err := api.DeleteVolume(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if got := stands(mustSee(t, api, id)); got != want {
				t.Errorf("volume %d is %q after a failed delete, want %q", id, got, want)
			}
		}
		deleted(mustCreate(t, api, "pvc-1").ID, "contact_support")
		v := mustCreate(t, api, "pvc-2")
		time.Sleep(time.Minute)
		if err := api.ResizeVolume(t.Context(), v.ID, 20); err != nil {
			t.Fatal(err)
		}
		deleted(v.ID, "active")
	})
}

func TestEachRouteHasItsLimit(t *testing.T) {
	simulated(t, emulator.Options{Limits: emulator.RealLimits()}, func(t *testing.T, c *emulator.Cloud, api *linodego.Client, _ int) {
		first := mustCreate(t, api, "pvc-0")
		for i := 1; i < 100; i++ {
			mustCreate(t, api, "pvc-"+strconv.Itoa(i))
		}
		create := func() error {
			_, err := api.CreateVolume(t.Context(), linodego.VolumeCreateOptions{Label: "more", Region: emulator.DefaultRegion})
			return err
		}
		if status, text := reason(t, create()); status != http.StatusTooManyRequests || text != "Too many requests" {
			t.Errorf("the 101st create = %d %s, want 429", status, text)
		}
		for range 200 {
			if _, err := api.ListVolumes(t.Context(), linodego.NewListOptions(1, "")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := api.ListVolumes(t.Context(), nil); !linodego.ErrHasStatus(err, http.StatusTooManyRequests) {
			t.Errorf("the 201st list = %v, want 429", err)
		}
		mustSee(t, api, first.ID) // the limits of others do not count here
		if stats := c.Stats(); stats.Refused != 2 {
			t.Errorf("%d were refused, want 2", stats.Refused)
		}
		time.Sleep(time.Minute)
		if err := create(); err != nil {
			t.Errorf("CreateVolume() = %v a minute later", err)
		}
	})
}

// bare is an answer as it is on the wire.
type bare struct {
	status int
	header http.Header
}

// fetch asks without the SDK, to see the headers.
func fetch(t *testing.T, method, url string, header map[string]string) (bare, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range header {
		req.Header.Set(key, value)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return bare{resp.StatusCode, resp.Header}, string(body)
}

func TestTheHeadersOfALimit(t *testing.T) {
	c := emulator.Start(t, emulator.Options{Limits: []rest.Limit{{Requests: 1, Window: time.Hour}}})
	token := map[string]string{"Authorization": "Bearer " + c.Token}
	for i, want := range []struct {
		status     int
		retryAfter bool
	}{{404, false}, {429, false}, {429, true}} {
		c.SetRules(func(r *emulator.Rules) { r.RetryAfter = i == 2 })
		resp, body := fetch(t, http.MethodGet, c.URL+"/v4/volumes/7", token)
		if resp.status != want.status || (resp.header.Get("Retry-After") != "") != want.retryAfter {
			t.Errorf("answer %d = %d with %v", i+1, resp.status, resp.header)
		}
		if resp.header.Get("X-Ratelimit-Limit") != "1" || resp.header.Get("X-Ratelimit-Remaining") != "0" || resp.header.Get("X-Ratelimit-Reset") == "" {
			t.Errorf("headers = %v", resp.header)
		}
		if resp.header.Get("Content-Type") != "application/json" || !strings.HasPrefix(body, `{"errors":[{"reason":`) {
			t.Errorf("answer = %s %s", resp.header.Get("Content-Type"), body)
		}
	}
}

func TestMetadata(t *testing.T) {
	c := emulator.Start(t, emulator.Options{Linodes: 2})
	base, other := c.Metadata(c.Linodes()[0]), c.Metadata(c.Linodes()[1])
	asJSON := map[string]string{"Accept": "application/json", "Metadata-Token-Expiry-Seconds": "3600"}
	if resp, _ := fetch(t, http.MethodGet, base+"/v1/instance", asJSON); resp.status != http.StatusUnauthorized {
		t.Errorf("without a token = %d, want 401", resp.status)
	}
	if resp, _ := fetch(t, http.MethodPut, base+"/v1/token", nil); resp.status != http.StatusBadRequest {
		t.Errorf("a token without an end = %d, want 400", resp.status)
	}
	_, body := fetch(t, http.MethodPut, base+"/v1/token", asJSON)
	var tokens []string
	if err := json.Unmarshal([]byte(body), &tokens); err != nil || len(tokens) != 1 {
		t.Fatalf("token = %s, want a list with one", body)
	}
	asJSON["Metadata-Token"] = tokens[0]
	resp, body := fetch(t, http.MethodGet, base+"/v1/instance", asJSON)
	var instance struct {
		ID     int
		Region string
		Specs  struct{ Memory int }
	}
	if err := json.Unmarshal([]byte(body), &instance); err != nil || resp.status != http.StatusOK ||
		instance.ID != c.Linodes()[0] || instance.Region != emulator.DefaultRegion || instance.Specs.Memory != 8192 {
		t.Errorf("instance = %d %s", resp.status, body)
	}
	delete(asJSON, "Accept")
	if _, body := fetch(t, http.MethodGet, base+"/v1/instance", asJSON); !strings.HasPrefix(body, "id: 20001\n") {
		t.Errorf("instance = %s, want plain text by default", body)
	}
	if resp, _ := fetch(t, http.MethodGet, other+"/v1/instance", asJSON); resp.status != http.StatusUnauthorized {
		t.Errorf("with the token of another Linode = %d, want 401", resp.status)
	}
	dark := c.Metadata(c.AddLinode(emulator.Linode{Region: "us-west"}))
	if resp, _ := fetch(t, http.MethodPut, dark+"/v1/token", asJSON); resp.status != http.StatusNotFound {
		t.Errorf("in a region without the service = %d, want 404", resp.status)
	}
	real, err := c.ListenMetadata(t.Context(), c.Linodes()[1], "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if resp, body := fetch(t, http.MethodPut, real+"/v1/token", asJSON); resp.status != http.StatusOK || !strings.HasPrefix(body, "20002.") {
		t.Errorf("token at an address of its own = %d %s", resp.status, body)
	}
}

func TestAMetadataTokenEnds(t *testing.T) {
	simulated(t, emulator.Options{}, func(t *testing.T, c *emulator.Cloud, _ *linodego.Client, linode int) {
		ask := func(method, path, token string) *httptest.ResponseRecorder {
			req := httptest.NewRequestWithContext(t.Context(), method, "/linodes/"+strconv.Itoa(linode)+path, nil)
			req.Header.Set("Metadata-Token-Expiry-Seconds", "60")
			req.Header.Set("Metadata-Token", token)
			answer := httptest.NewRecorder()
			c.Handler().ServeHTTP(answer, req)
			return answer
		}
		token := strings.TrimSpace(ask(http.MethodPut, "/v1/token", "").Body.String())
		for _, want := range []int{http.StatusOK, http.StatusUnauthorized} {
			if got := ask(http.MethodGet, "/v1/instance", token).Code; got != want {
				t.Errorf("GET /v1/instance = %d, want %d", got, want)
			}
			time.Sleep(time.Minute)
		}
	})
}
