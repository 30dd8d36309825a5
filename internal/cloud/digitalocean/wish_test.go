package digitalocean_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
)

// refusing returns an account whose droplets do not let volumes grow while attached, and a volume there
// whose growth to 5 GiB was refused.
func refusing(t *testing.T) (*emulator.Cloud, *digitalocean.Cloud, cloud.VolumeID) {
	t.Helper()
	account := start(t, emulator.Options{
		Rules: emulator.Rules{ResizeRefused: true}, Durations: emulator.Actions(clock.Fixed(10 * time.Millisecond)),
	})
	c := open(t, account)
	id := attached(t, c)
	_, err := c.ExpandVolume(t.Context(), id, 5*cloud.GiB)
	want(t, err, fault.Precondition, "scale the workload to zero", "droplet 101")
	wished(t, account, id, "cloudblock-grow:5")
	return account, c, id
}

// wished fails the test unless the volume has exactly this wish ("": none).
func wished(t *testing.T, account *emulator.Cloud, id cloud.VolumeID, tag string) {
	t.Helper()
	vol, _ := account.Volume(string(id))
	var have []string
	for _, word := range vol.Tags {
		if strings.HasPrefix(word, "cloudblock-grow") {
			have = append(have, word)
		}
	}
	if got := strings.Join(have, " "); got != tag {
		t.Errorf("the volume has the wish %q, want %q", got, tag)
	}
}

// grown waits until the volume has the size and no wish.
func grown(t *testing.T, account *emulator.Cloud, id cloud.VolumeID, gib int) {
	t.Helper()
	until(t, fmt.Sprintf("the volume has %d GiB and no wish", gib), func() bool {
		vol, _ := account.Volume(string(id))
		return vol.SizeGiB == gib && !strings.Contains(strings.Join(vol.Tags, " "), "cloudblock-grow")
	})
}

// E4: a wish is carried out after the detach, which does not wait for it, and the attach that follows joins it.
func TestAWishIsCarriedOutBetweenDetachAndAttach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account, c, id := refusing(t)
		account.Arm(emulator.Fault{Method: "POST", Body: `"resize"`, Times: 1, Effect: faults.Effect{Takes: clock.Fixed(300 * time.Millisecond)}})
		must(t, c.Detach(t.Context(), id, node1))
		if vol, _ := account.Volume(string(id)); vol.SizeGiB != 1 {
			t.Errorf("the detach waited for the growth: %+v", vol)
		}
		_, err := c.Attach(t.Context(), id, node2)
		must(t, err)
		grown(t, account, id, 5)
		at(t, account, id, droplet2)
	})
}

// A10 and E4: the wish stands on the volume, so it outlives the controller, before the detach and after it.
func TestAWishOutlivesTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account, c, id := refusing(t)
		must(t, c.Close(t.Context()))
		second := open(t, account)
		must(t, second.Detach(t.Context(), id, node1))
		grown(t, account, id, 5)

		account, c, id = refusing(t)
		must(t, c.Close(t.Context()))
		account.Attached(string(id), 0) // somebody else has detached it
		third := open(t, account)
		_, err := third.Attach(t.Context(), id, node2)
		must(t, err)
		grown(t, account, id, 5)
		at(t, account, id, droplet2)
	})
}

// A wish that fails never blocks a pod: it is tried once per detach or attach, and says why on the volume.
func TestAWishThatFailsBlocksNoAttach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account, c, id := refusing(t)
		account.SetRules(func(r *emulator.Rules) { r.CapacityLimit = 2 })
		account.ResetStats()
		must(t, c.Detach(t.Context(), id, node1))
		_, err := c.Attach(t.Context(), id, node2)
		must(t, err)
		at(t, account, id, droplet2)
		wished(t, account, id, "cloudblock-grow:5:volume_snapshot_capacity_limit_exceeded")
		resizes := 0
		for _, e := range account.Exchanges() {
			if e.Status == 403 {
				resizes++
			}
		}
		if resizes < 1 || resizes > 2 {
			t.Errorf("the growth was tried %d times for one detach and one attach", resizes)
		}
		account.SetRules(func(r *emulator.Rules) { r.CapacityLimit = 0 })
		must(t, c.Detach(t.Context(), id, node2))
		grown(t, account, id, 5)
	})
}

func TestTheLastWishCountsAndOneThatIsFulfilledGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account, c, id := refusing(t)
		_, err := c.ExpandVolume(t.Context(), id, 7*cloud.GiB)
		want(t, err, fault.Precondition)
		wished(t, account, id, "cloudblock-grow:7")
		_, err = c.ExpandVolume(t.Context(), id, 3*cloud.GiB)
		want(t, err, fault.Precondition)
		wished(t, account, id, "cloudblock-grow:3")
		exp, err := c.ExpandVolume(t.Context(), id, cloud.GiB)
		if err != nil || exp.Size != cloud.GiB {
			t.Errorf("ExpandVolume to the present size = %+v, %v", exp, err)
		}
		wished(t, account, id, "")
		_, err = c.ExpandVolume(t.Context(), id, 5*cloud.GiB)
		want(t, err, fault.Precondition)
		account.SetRules(func(r *emulator.Rules) { r.ResizeRefused = false })
		_, err = c.ExpandVolume(t.Context(), id, 6*cloud.GiB)
		must(t, err)
		grown(t, account, id, 6)
	})
}

// E4: each sidecar has a lease of its own, so one controller writes the wish and another detaches and attaches,
// which has known the volume since before it had one.
func TestAWishIsCarriedOutByAnotherController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account, resizing, id := refusing(t)
		attaching := open(t, account)
		must(t, attaching.Detach(t.Context(), id, node1)) // knows the volume with its wish
		grown(t, account, id, 5)
		_, err := attaching.Attach(t.Context(), id, node1)
		must(t, err)
		_, err = resizing.ExpandVolume(t.Context(), id, 7*cloud.GiB)
		want(t, err, fault.Precondition)
		must(t, attaching.Detach(t.Context(), id, node1))
		_, err = attaching.Attach(t.Context(), id, node2)
		must(t, err)
		grown(t, account, id, 7)
		at(t, account, id, droplet2)
	})
}

// What the resizer was told counts: a volume that is large enough is answered only when no wish for more is left,
// and a list that is too old to show one proves nothing.
func TestAWishThatIsTakenBackIsNotCarriedOut(t *testing.T) {
	tests := map[string]struct {
		to    cloud.Bytes
		fault emulator.Fault
		kind  fault.Kind // of the first answer
	}{
		"the list is old": {cloud.GiB, emulator.Fault{
			Method: "GET", Route: "/v2/volumes", Effect: faults.Effect{StaleAge: clock.Fixed(time.Second)},
		}, fault.None},
		"the cloud fails to take it off":                {cloud.GiB, emulator.Fault{Method: "DELETE", Times: 1, Effect: faults.Effect{Status: 500}}, fault.Uncertain},
		"the token may not take it off":                 {cloud.GiB, emulator.Fault{Method: "DELETE", Times: 1, Effect: faults.Effect{Status: 403}}, fault.Unavailable},
		"it fails after the volume has grown by itself": {2 * cloud.GiB, emulator.Fault{Method: "DELETE", Times: 1, Effect: faults.Effect{Status: 500}}, fault.Uncertain},
		"it fails before a smaller one is written":      {3 * cloud.GiB, emulator.Fault{Method: "DELETE", Times: 1, Effect: faults.Effect{Status: 500}}, fault.Uncertain},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account, c, id := refusing(t)
				time.Sleep(2 * time.Second)
				_, err := c.ExpandVolume(t.Context(), id, 7*cloud.GiB)
				want(t, err, fault.Precondition)
				account.SetRules(func(r *emulator.Rules) { r.ResizeRefused = tc.to == 3*cloud.GiB })
				account.Arm(tc.fault)
				another := volume(t, c, "another").ID // two that are asked for at once are looked for on a list
				answers := make([]error, 2)
				cloudtest.AtOnce(t, 2, func(n int) error {
					if n == 1 {
						_, err := c.ExpandVolume(t.Context(), another, cloud.GiB)
						return err
					}
					_, answers[0] = c.ExpandVolume(t.Context(), id, tc.to)
					return nil
				})
				want(t, answers[0], tc.kind)
				if answers[0] != nil {
					_, answers[1] = c.ExpandVolume(t.Context(), id, tc.to)
				}
				if tc.to == 3*cloud.GiB {
					want(t, answers[1], fault.Precondition)
					wished(t, account, id, "cloudblock-grow:3")
					return
				}
				must(t, answers[1])
				wished(t, account, id, "")
			})
		})
	}
}

// after lets something happen once, when a request has been answered.
func after(match func(*http.Request, *http.Response) bool, do func()) func(*digitalocean.Config) {
	var once sync.Once
	return func(cfg *digitalocean.Config) {
		base := cfg.Transport
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			answer, err := base.RoundTrip(r)
			if err == nil && match(r, answer) {
				once.Do(do)
			}
			return answer, err
		})
	}
}

// A growth may fail long after the wish was read. A reason is not written where there is no such wish any more: the
// next detach would take it for one.
func TestAWishThatWasTakenBackDoesNotComeBackWithAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account, resizing, id := refusing(t)
		account.SetRules(func(r *emulator.Rules) { r.CapacityLimit = 1 })
		refused := func(_ *http.Request, answer *http.Response) bool { return answer.StatusCode == http.StatusForbidden }
		attaching := open(t, account, after(refused, func() {
			_, err := resizing.ExpandVolume(t.Context(), id, cloud.GiB)
			must(t, err)
			wished(t, account, id, "")
		}))
		must(t, attaching.Detach(t.Context(), id, node1))
		time.Sleep(time.Minute)
		wished(t, account, id, "")
	})
}

// A wish that is written while an older one is carried out is another one.
func TestANewerWishOutlivesTheGrowthOfAnOlderOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account, resizing, id := refusing(t)
		grown := func(r *http.Request, _ *http.Response) bool {
			vol, _ := account.Volume(string(id))
			return vol.SizeGiB == 5 && strings.HasPrefix(r.URL.Path, "/v2/actions")
		}
		attaching := open(t, account, after(grown, func() {
			account.Attached(string(id), droplet2) // by somebody else
			_, err := resizing.ExpandVolume(t.Context(), id, 9*cloud.GiB)
			want(t, err, fault.Precondition)
		}))
		must(t, attaching.Detach(t.Context(), id, node1))
		time.Sleep(time.Minute)
		wished(t, account, id, "cloudblock-grow:9")
	})
}
