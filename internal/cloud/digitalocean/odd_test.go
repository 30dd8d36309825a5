package digitalocean_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// edited replaces a text in the answers to reads below a path.
type edited struct {
	http.RoundTripper
	path, from, to string
}

func (e edited) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := e.RoundTripper.RoundTrip(r)
	if err != nil || r.Method != http.MethodGet || !strings.HasPrefix(r.URL.Path, e.path) {
		return answer, err
	}
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	answer.Body, answer.ContentLength = io.NopCloser(strings.NewReader(strings.ReplaceAll(string(text), e.from, e.to))), -1
	return answer, err
}

// A region that takes no new droplets still has volumes for those that it has.
func TestARegionWithoutNewDropletsHasVolumes(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account, func(cfg *digitalocean.Config) {
		cfg.Transport = edited{cfg.Transport, "/v2/regions", `"available":true`, `"available":false`}
	})
	must(t, c.CheckRegion(t.Context()))
	account.Arm(emulator.Fault{Method: "POST", Times: 1, Effect: faults.Effect{Status: 422, Message: "the moon is full"}})
	_, err := c.CreateVolume(t.Context(), request("a"))
	want(t, err, fault.InvalidArgument, "the moon is full")
}

// An attach that a droplet's state explains says so after one request.
func TestAnAttachNamesTheStateOfTheDroplet(t *testing.T) {
	for name, state := range map[string]edited{
		"locked":  {from: `"locked":false`, to: `"locked":true`},
		"archive": {from: `"status":"active"`, to: `"status":"archive"`},
		"off":     {from: `"status":"active"`, to: `"status":"off"`},
	} {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{})
			id := volume(t, open(t, account), "a").ID
			c := open(t, account, func(cfg *digitalocean.Config) {
				state.RoundTripper, state.path = cfg.Transport, "/v2/droplets/"
				cfg.Transport = state
			})
			account.Arm(emulator.Fault{Method: "POST", Body: `"attach"`, Times: 1, Effect: faults.Effect{Status: 422, Message: "the moon is full"}})
			_, err := c.Attach(t.Context(), id, node1)
			if strings.Contains(state.to, "off") { // which is no obstacle
				must(t, err)
				return
			}
			want(t, err, fault.Unavailable, "locked or archived", "the moon is full")
		})
	}
}
