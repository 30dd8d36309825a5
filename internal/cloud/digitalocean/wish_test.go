package digitalocean_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
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
