package digitalocean_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

func TestAnAnswerCanGetLost(t *testing.T) {
	for _, inMemory := range []bool{false, true} {
		for lost, wantVolumes := range map[faults.Lost]int{faults.LostBefore: 0, faults.LostAfter: 1} {
			t.Run("lost "+string(lost)+", in memory "+strconv.FormatBool(inMemory), func(t *testing.T) {
				c, api, _ := start(t, emulator.Options{InMemory: inMemory})
				c.Arm(emulator.Fault{Method: http.MethodPost, Route: "/v2/volumes", Effect: faults.Effect{Lost: lost}})
				_, resp, err := api.Storage.CreateVolume(t.Context(), &godo.VolumeCreateRequest{Name: "pvc-1", Region: "fra1", SizeGigaBytes: 1})
				if err == nil || resp != nil {
					t.Errorf("CreateVolume() = %v, %v, want an error without an answer", resp, err)
				}
				if got := len(c.Volumes()); got != wantVolumes {
					t.Errorf("%d volumes, want %d", got, wantVolumes)
				}
				if stats := c.Stats(); stats.Statuses[0] != 1 || stats.Faults["lost-"+string(lost)] != 1 {
					t.Errorf("Stats() = %+v, want one cut connection", stats)
				}
			})
		}
	}
}

func TestAFaultStrikesWhatItSays(t *testing.T) {
	c, api, droplet := start(t, emulator.Options{})
	armed := c.Arm(emulator.Fault{
		Method: http.MethodPost, Route: "/v2/volumes/{volume_id}/actions", Body: `"detach"`, Skip: 1, Times: 1,
		Effect: faults.Effect{Status: http.StatusServiceUnavailable, Message: "come back later"},
	})
	v := mustCreate(t, api, "pvc-1")
	for i, want := range []int{http.StatusAccepted, http.StatusServiceUnavailable, http.StatusAccepted} {
		if now, _ := c.Volume(v.ID); now.DropletID == 0 {
			mustAttach(t, api, v.ID, droplet)
		}
		_, resp, err := api.StorageActions.DetachByDropletID(t.Context(), v.ID, droplet)
		if resp.StatusCode != want {
			t.Errorf("detach %d = %d %v, want %d", i+1, resp.StatusCode, err, want)
		}
		if want == http.StatusServiceUnavailable && !strings.Contains(err.Error(), "come back later") {
			t.Errorf("error = %v, want the armed words", err)
		}
	}
	c.Arm(emulator.Fault{Method: http.MethodPost, Route: "/v2/volumes/{volume_id}/snapshots", Effect: faults.Effect{Status: 500}})
	if _, _, err := api.Storage.CreateVolume(t.Context(), &godo.VolumeCreateRequest{Name: "pvc-9", Region: "fra1", SizeGigaBytes: 1}); err != nil {
		t.Errorf("CreateVolume() = %v with a fault of another route", err)
	}
	c.Disarm()
	if armed.Hits() != 1 {
		t.Errorf("Hits() = %d, want 1", armed.Hits())
	}
	again := c.Arm(emulator.Fault{Effect: faults.Effect{Status: 500}})
	again.Disarm()
	mustCreate(t, api, "pvc-2")
}

// simulated runs f in simulated time with an account in memory.
func simulated(t *testing.T, opts emulator.Options, f func(t *testing.T, c *emulator.Cloud, api *godo.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts.InMemory = true
		c := emulator.Start(t, opts)
		f(t, c, client(t, c))
	})
}

func TestOperationsTakeTheirTime(t *testing.T) {
	lasting := emulator.Actions(clock.Span{Least: 2 * time.Second, Spread: 3 * time.Second})
	lasting.CreateVolume = clock.Fixed(time.Second)
	simulated(t, emulator.Options{Droplets: 20, Durations: lasting}, func(t *testing.T, c *emulator.Cloud, api *godo.Client) {
		for i, droplet := range c.Droplets() {
			mustAttach(t, api, mustCreate(t, api, "pvc-"+strconv.Itoa(i)).ID, droplet)
		}
		time.Sleep(10 * time.Second)
		seen := map[time.Duration]bool{}
		for _, op := range c.Operations() {
			took := op.Finished.Sub(op.Accepted)
			switch {
			case op.Kind == "create_volume" && took != time.Second:
				t.Errorf("create took %s, want 1s", took)
			case op.Kind == "attach_volume" && (took < 2*time.Second || took > 5*time.Second):
				t.Errorf("attach took %s, want 2s to 5s", took)
			case op.Kind == "attach_volume":
				seen[took] = true
			}
		}
		if len(seen) < 10 {
			t.Errorf("20 attaches took only %d different times", len(seen))
		}
	})
}

func TestOneOperationCanTakeLonger(t *testing.T) {
	simulated(t, emulator.Options{Droplets: 1}, func(t *testing.T, c *emulator.Cloud, api *godo.Client) {
		c.Arm(emulator.Fault{Body: `"attach"`, Times: 1, Effect: faults.Effect{Takes: clock.Fixed(time.Hour)}})
		mustAttach(t, api, mustCreate(t, api, "pvc-1").ID, c.Droplets()[0])
		time.Sleep(59 * time.Minute)
		if len(c.Running()) != 1 {
			t.Error("the action ended before its hour was over")
		}
		time.Sleep(2 * time.Minute)
		if len(c.Running()) != 0 {
			t.Error("the action is running after its hour")
		}
	})
}

func TestRateLimits(t *testing.T) {
	simulated(t, emulator.Options{Limits: []rest.Limit{{Requests: 3, Window: time.Minute}, {Requests: 5, Window: time.Hour}}},
		func(t *testing.T, c *emulator.Cloud, api *godo.Client) {
			look := func() (int, http.Header) {
				_, resp, _ := api.Regions.List(t.Context(), nil)
				return resp.StatusCode, resp.Header
			}
			begin := time.Now()
			for i := range 3 {
				status, header := look()
				if status != http.StatusOK || header.Get("Ratelimit-Limit") != "5" || header.Get("Ratelimit-Remaining") != strconv.Itoa(4-i) {
					t.Errorf("request %d = %d %v, want it allowed and %d left", i+1, status, header, 4-i)
				}
				if reset := header.Get("Ratelimit-Reset"); reset != strconv.FormatInt(begin.Add(time.Hour).Unix(), 10) {
					t.Errorf("Ratelimit-Reset = %s, want when the first request is forgotten", reset)
				}
			}
			if status, header := look(); status != http.StatusTooManyRequests || header.Get("Retry-After") != "60" {
				t.Errorf("request 4 = %d %v, want it refused for a minute", status, header)
			}
			time.Sleep(time.Minute)
			for i := range 2 {
				if status, _ := look(); status != http.StatusOK {
					t.Errorf("request %d = %d, want it allowed a minute later", i+5, status)
				}
			}
			if status, header := look(); status != http.StatusTooManyRequests || header.Get("Retry-After") != "" || header.Get("Ratelimit-Remaining") != "0" {
				t.Errorf("request 7 = %d %v, want it refused by the hour's limit, without Retry-After", status, header)
			}
			time.Sleep(time.Hour)
			if status, _ := look(); status != http.StatusOK {
				t.Errorf("request an hour later = %d, want it allowed", status)
			}
			if stats := c.Stats(); stats.Refused != 2 {
				t.Errorf("Refused = %d, want 2", stats.Refused)
			}
		})
}

func TestTimeCanRunFaster(t *testing.T) {
	simulated(t, emulator.Options{Speed: 60, Limits: []rest.Limit{{Requests: 1, Window: time.Minute}}, Rules: emulator.Rules{
		SnapshotInterval: clock.Fixed(10 * time.Minute),
	}}, func(t *testing.T, _ *emulator.Cloud, api *godo.Client) {
		_, resp, err := api.Regions.List(t.Context(), nil)
		if err != nil || resp.Header.Get("Ratelimit-Reset") != strconv.FormatInt(time.Now().Add(time.Second).Unix(), 10) {
			t.Errorf("Regions.List() = %v, %v, want a reset in one second of the client", resp.Header, err)
		}
		_, resp, _ = api.Regions.List(t.Context(), nil)
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" {
			t.Errorf("second request = %d %v, want it refused for one second of the client", resp.StatusCode, resp.Header)
		}
		time.Sleep(time.Second)
		if _, _, err := api.Regions.List(t.Context(), nil); err != nil {
			t.Errorf("Regions.List() one second later = %v", err)
		}
	})
}
