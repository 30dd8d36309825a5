package linode_test

import (
	"encoding/json"
	"errors"
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
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
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

// A delete cancels what is under way. If it fails, the volume stays as what was canceled has left it, and in no status
// that nothing ends.
func TestAFailedDeleteLeavesNothingUnderWay(t *testing.T) {
	lasts := emulator.Each(clock.Fixed(10 * time.Second))
	simulated(t, emulator.Options{Durations: lasts}, func(t *testing.T, c *emulator.Cloud, api *linodego.Client, _ int) {
		c.Arm(emulator.Fault{Method: http.MethodDelete, Effect: faults.Effect{Errored: true}})
		deleted := func(id int, want string) {
			t.Helper()
			must(t, api.DeleteVolume(t.Context(), id))
			time.Sleep(time.Minute)
			if got := stands(mustSee(t, api, id)); got != want {
				t.Errorf("volume %d is %q after a failed delete, want %q", id, got, want)
			}
		}
		deleted(mustCreate(t, api, "pvc-1").ID, "contact_support")
		v := mustCreate(t, api, "pvc-2")
		time.Sleep(time.Minute)
		must(t, api.ResizeVolume(t.Context(), v.ID, 20))
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

func TestTheHeadersOfALimit(t *testing.T) {
	c := emulator.Start(t, emulator.Options{Limits: []rest.Limit{{Requests: 1, Window: time.Hour}}})
	for i, want := range []struct {
		status     int
		retryAfter bool
	}{{404, false}, {429, false}, {429, true}} {
		c.SetRules(func(r *emulator.Rules) { r.RetryAfter = i == 2 })
		got := expect.Fetch(t, http.MethodGet, c.URL+"/v4/volumes/7", "", "Authorization", "Bearer "+c.Token)
		if got.Status != want.status || (got.Header.Get("Retry-After") != "") != want.retryAfter {
			t.Errorf("answer %d = %+v", i+1, got)
		}
		if got.Header.Get("X-Ratelimit-Limit") != "1" || got.Header.Get("X-Ratelimit-Remaining") != "0" || got.Header.Get("X-Ratelimit-Reset") == "" {
			t.Errorf("headers = %v", got.Header)
		}
		if got.Header.Get("Content-Type") != "application/json" || !strings.HasPrefix(got.Body, `{"errors":[{"reason":`) {
			t.Errorf("answer = %+v", got)
		}
	}
}

func TestMetadata(t *testing.T) {
	c := emulator.Start(t, emulator.Options{Linodes: 2})
	base, other := c.Metadata(c.Linodes()[0]), c.Metadata(c.Linodes()[1])
	header := []string{"Accept", "application/json", "Metadata-Token-Expiry-Seconds", "3600"}
	get := func(base string) expect.Answer {
		return expect.Fetch(t, http.MethodGet, base+"/v1/instance", "", header...)
	}
	put := func(base string) expect.Answer {
		return expect.Fetch(t, http.MethodPut, base+"/v1/token", "", header...)
	}
	if got := get(base); got.Status != http.StatusUnauthorized {
		t.Errorf("without a token = %+v, want 401", got)
	}
	if got := expect.Fetch(t, http.MethodPut, base+"/v1/token", ""); got.Status != http.StatusBadRequest {
		t.Errorf("a token without an end = %+v, want 400", got)
	}
	var tokens []string
	if got := put(base); json.Unmarshal([]byte(got.Body), &tokens) != nil || len(tokens) != 1 {
		t.Fatalf("token = %+v, want a list with one", got)
	}
	header = append(header, "Metadata-Token", tokens[0])
	got := get(base)
	var instance struct {
		ID     int
		Region string
		Specs  struct{ Memory int }
	}
	if err := json.Unmarshal([]byte(got.Body), &instance); err != nil || got.Status != http.StatusOK ||
		instance.ID != c.Linodes()[0] || instance.Region != emulator.DefaultRegion || instance.Specs.Memory != 8192 {
		t.Errorf("instance = %+v", got)
	}
	header = header[2:]
	if got := get(base); !strings.HasPrefix(got.Body, "id: 20001\n") {
		t.Errorf("instance = %+v, want plain text by default", got)
	}
	if got := get(other); got.Status != http.StatusUnauthorized {
		t.Errorf("with the token of another Linode = %+v, want 401", got)
	}
	dark := c.Metadata(c.AddLinode(emulator.Linode{Region: "us-west"}))
	if got := put(dark); got.Status != http.StatusNotFound {
		t.Errorf("in a region without the service = %+v, want 404", got)
	}
	real, err := c.ListenMetadata(t.Context(), c.Linodes()[1], "127.0.0.1:0")
	must(t, err)
	if got := put(real); got.Status != http.StatusOK || !strings.HasPrefix(got.Body, "20002.") {
		t.Errorf("token at an address of its own = %+v", got)
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
