package digitalocean_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
)

// hollow answers questions below a path with an object that holds nothing, as a proxy on the way may.
type hollow struct {
	http.RoundTripper
	path string
}

func (h hollow) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := h.RoundTripper.RoundTrip(r)
	if err == nil && r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, h.path) {
		_ = answer.Body.Close()
		const nothing = "{}"
		answer.Body, answer.ContentLength = io.NopCloser(strings.NewReader(nothing)), int64(len(nothing))
	}
	return answer, err
}

// C6: an answer about nothing is no answer: it ends no wait, says nothing of a machine, and the program lives.
func TestAnAnswerAboutNothingIsNone(t *testing.T) {
	for name, path := range map[string]string{"about an action": "/v2/actions/", "about a droplet": "/v2/droplets/"} {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{
				Durations: emulator.Actions(clock.Fixed(50 * time.Millisecond)), Rules: emulator.Rules{VolumesPerDroplet: 1},
			})
			c := open(t, account)
			full, id := volume(t, c, "full").ID, volume(t, c, "a").ID
			_, err := c.Attach(t.Context(), full, node1)
			must(t, err)
			onto := node2
			if path == "/v2/droplets/" {
				onto = node1
			}
			odd := open(t, account, func(cfg *digitalocean.Config) { cfg.Transport = hollow{cfg.Transport, path} })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = odd.Attach(ctx, id, onto)
			if kind := fault.Of(err); kind != fault.Unavailable && kind != fault.Uncertain {
				t.Errorf("Attach = %v, want a kind that is repeated", err)
			}
		})
	}
}
