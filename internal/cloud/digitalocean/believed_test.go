package digitalocean_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// answering replaces the answers to requests with a method.
func answering(method string, status int, kind, body string) func(*digitalocean.Config) {
	return func(cfg *digitalocean.Config) {
		cfg.Transport = cloudtest.Answering(cfg.Transport, method, status, kind, body)
	}
}

// A list of null is no empty list.
func TestAListOfNullIsUnavailable(t *testing.T) {
	c := open(t, start(t, emulator.Options{}), answering("GET", 200, "application/json", `{"volumes":null,"snapshots":null}`))
	_, err := c.ListVolumes(t.Context(), cloud.Page{})
	want(t, err, fault.Unavailable)
	_, err = c.ListSnapshots(t.Context(), "", cloud.Page{})
	want(t, err, fault.Unavailable)
	_, err = c.FindVolume(t.Context(), "a")
	want(t, err, fault.Unavailable)
}

// P9: an answer of any length, also one that is short on the wire, takes no more memory than its bound.
func TestAnswersEnd(t *testing.T) {
	var bomb bytes.Buffer
	packed, err := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
	must(t, err)
	for range 40 {
		_, err := packed.Write(bytes.Repeat([]byte(" "), 1<<20))
		must(t, err)
	}
	must(t, packed.Close())
	serve := func(status int) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(status)
			_, _ = w.Write(bomb.Bytes())
		}))
	}
	for _, status := range []int{200, 500} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			server := serve(status)
			defer server.Close()
			var read counted
			c := open(t, start(t, emulator.Options{}), func(cfg *digitalocean.Config) {
				cfg.Endpoint, cfg.Transport = server.URL, &read
			})
			want(t, c.Check(t.Context()), fault.Unavailable)
			if limit := int64(33 << 20); read.bytes > limit {
				t.Errorf("%d bytes of the answer were read, want at most %d", read.bytes, limit)
			}
		})
	}
}

// counted counts the bytes of bodies that are read, after decompression.
type counted struct{ bytes int64 }

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(resp.Body, c), resp.Body}
	}
	return resp, err
}

func (c *counted) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return len(p), nil
}

// A1, A12: attach and detach go through however long each GET takes.
func TestASlowAPIDelaysAndPreventsNothing(t *testing.T) {
	for _, takes := range []time.Duration{time.Second, 2500 * time.Millisecond, 10 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{Durations: emulator.Actions(clock.Fixed(2 * time.Second))})
				c := stack(open(t, account, func(cfg *digitalocean.Config) { cfg.Tick = 0 }))
				vol := volume(t, c, "a")
				account.Arm(emulator.Fault{Method: "GET", Effect: faults.Effect{Delay: clock.Fixed(takes)}})
				for _, refused := range []bool{false, true} {
					if refused { // and also where a refusal has to be explained
						account.Attached(string(vol.ID), droplet1)
					}
					attach(t, c, vol.ID, node1)
					must(t, c.Detach(t.Context(), vol.ID, node1))
					at(t, account, vol.ID, 0)
				}
				must(t, c.Detach(t.Context(), vol.ID, node1))
				if s := account.Stats(); s.Reads > 20 {
					t.Errorf("%d reads for 5 calls: %v", s.Reads, s.Routes)
				}
			})
		})
	}
}

// A12: the action that a write has begun may not be found at first (hashicorp/terraform#481). That ends no wait.
func TestAFreshActionMayBeMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Durations: emulator.Actions(clock.Fixed(4 * time.Second))})
		c := open(t, account, func(cfg *digitalocean.Config) { cfg.Tick = 0 })
		vol := volume(t, c, "a")
		account.Arm(emulator.Fault{Method: "GET", Route: "/v2/actions/{action_id}", Times: 3, Effect: faults.Effect{Status: 404}})
		attach(t, c, vol.ID, node1)
		at(t, account, vol.ID, droplet1)
		if n := account.Stats().Routes["POST "+actionsRoute]; n != 1 {
			t.Errorf("%d writes for one attach", n)
		}
	})
}

// P1: a refusal of one route that asks for a longer wait than the limit of a minute ever does, while the hour's budget is not used up,
// or that speaks of its own interval, is about that route and delays nothing else.
func TestALongWaitOfOneRouteDoesNotStopTheOthers(t *testing.T) {
	snapshots, actions := "/v2/volumes/{volume_id}/snapshots", actionsRoute
	for name, tc := range map[string]struct {
		route, words, after string
		kind                fault.Kind
	}{
		"the rule about snapshots":                 {snapshots, "this operation is rate-limited - one request per 10m0s", "600", fault.Precondition},
		"the same, soon over":                      {snapshots, "this operation is rate-limited - one request per 10m0s", "30", fault.Precondition},
		"the same in words that are not known":     {snapshots, "slow down", "600", fault.Precondition},
		"a refusal of an attach with unknown text": {actions, "slow down", "600", fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{})
				c := open(t, account, func(cfg *digitalocean.Config) { cfg.Limits = nil })
				vol, other := volume(t, c, "a"), volume(t, c, "b")
				attach(t, c, vol.ID, node1)
				account.Arm(emulator.Fault{Method: "POST", Route: tc.route, Times: 1, Effect: faults.Effect{
					Status: 429, Message: tc.words, Header: map[string]string{"Retry-After": tc.after, "ratelimit-limit": "5000", "ratelimit-remaining": "4900"},
				}})
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				var err error
				if tc.route == snapshots {
					_, err = c.CreateSnapshot(ctx, cloud.CreateSnapshotRequest{Name: "s", Volume: vol.ID})
				} else {
					_, err = c.Attach(ctx, other.ID, node2)
				}
				want(t, err, tc.kind)
				must(t, c.Detach(t.Context(), vol.ID, node1))
				if took := time.Since(began); took > time.Second {
					t.Errorf("after %s the volume was detached, want no wait", took)
				}
			})
		})
	}
}

func FuzzAnswers(f *testing.F) {
	good := `{"volumes":[{"id":"506f78a4-e098-11e5-ad9f-000f53306ae1","name":"new","size_gigabytes":20,"region":{"slug":"fra1"},"droplet_ids":[1]}],"volume":{"id":"506f78a4-e098-11e5-ad9f-000f53306ae1","name":"new"},"snapshots":[],"actions":[{"id":1,"status":"completed"}],"action":{"id":1,"status":"errored"},"links":{},"meta":{"total":1}}`
	objects := cloudtest.Objects{
		Volume: "506f78a4-e098-11e5-ad9f-000f53306ae1", Snapshot: "506f78a4-e098-11e5-ad9f-000f53306ae2", Node: node1, Zone: emulator.DefaultRegion,
	}
	cloudtest.FuzzHTTPAnswers(f, objects, good, func(t *testing.T, through http.RoundTripper) cloud.Cloud {
		return open(t, start(t, emulator.Options{}), func(cfg *digitalocean.Config) {
			cfg.Endpoint, cfg.Token = "https://"+cloudtest.FuzzedHost, func() (string, error) { return cloudtest.FuzzedToken, nil }
			cfg.Transport = through
		})
	})
}
