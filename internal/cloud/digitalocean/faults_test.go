package digitalocean_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

const actionsRoute = "/v2/volumes/{volume_id}/actions"

// stack is the backend as the program runs it.
func stack(c cloud.Cloud) cloud.Cloud {
	return middleware.Stack(c, wait.Backoff{Tries: 4, First: time.Millisecond, Max: 5 * time.Millisecond})
}

func request(name string) cloud.CreateVolumeRequest {
	return cloud.CreateVolumeRequest{Name: name, Size: cloud.GiB, Zones: []string{emulator.DefaultRegion}}
}

func volume(t *testing.T, c cloud.Cloud, name string) cloud.Volume {
	t.Helper()
	vol, err := c.CreateVolume(t.Context(), request(name))
	must(t, err)
	return vol
}

var must, want, until = cloudtest.Must, cloudtest.Want, cloudtest.Until

// droplets fails the test unless the account shows the volume at exactly this droplet (0: at none).
func at(t *testing.T, account *emulator.Cloud, id cloud.VolumeID, droplet int) {
	t.Helper()
	vol, found := account.Volume(string(id))
	if !found || vol.DropletID != droplet {
		t.Errorf("volume %s is at droplet %d (exists: %v), want %d", id, vol.DropletID, found, droplet)
	}
}

// The cloud reports an errored action and not why: the answer says what to do.
func TestAnErroredActionIsUnavailableAndRepeatable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Durations: emulator.Actions(clock.Fixed(5 * time.Millisecond))})
		c := open(t, account)
		vol := volume(t, c, "a")
		account.Arm(emulator.Fault{Method: "POST", Route: actionsRoute, Times: 1, Effect: faults.Effect{Errored: true}})
		_, err := c.Attach(t.Context(), vol.ID, node1)
		want(t, err, fault.Unavailable, string(vol.ID), "droplet 101", "sent again")
	})
}

// A2 and A9: "already attached" is settled by a fresh look: here is OK, elsewhere names the droplet, and an
// old list changes nothing about it.
func TestAlreadyAttachedIsSettledByAFreshLook(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	vol := volume(t, c, "a")
	account.Attached(string(vol.ID), droplet2)
	account.Arm(emulator.Fault{Method: "GET", Route: "/v2/volumes", Effect: faults.Effect{StaleChanges: 2}})
	_, err := c.Attach(t.Context(), vol.ID, node1)
	want(t, err, fault.Precondition, "droplet 102")
	dev, err := c.Attach(t.Context(), vol.ID, node2)
	if err != nil || dev.Name != "scsi-0DO_Volume_a" || dev.Serial != "a" {
		t.Errorf("Attach where it is = %+v, %v", dev, err)
	}
	must(t, c.Detach(t.Context(), vol.ID, node2))
	_, err = c.Attach(t.Context(), vol.ID, node1)
	must(t, err)
}

// A3 and A11: a droplet that is gone gives its volumes back, and success is said only when the volume's own
// record shows it.
func TestDetachFromADropletThatIsGoneWaitsForTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		c := open(t, account)
		vol := volume(t, c, "a")
		_, err := c.Attach(t.Context(), vol.ID, node1)
		must(t, err)
		account.RemoveDroplet(droplet1, 100*time.Millisecond)
		err = c.Detach(t.Context(), vol.ID, node1)
		if err == nil {
			at(t, account, vol.ID, 0)
		} else {
			want(t, err, fault.Unavailable, "when the droplet is gone")
		}
		deadline := time.Now().Add(10 * time.Second)
		for err != nil && time.Now().Before(deadline) {
			err = stack(c).Detach(t.Context(), vol.ID, node1)
		}
		must(t, err)
		at(t, account, vol.ID, 0)
		_, err = c.Attach(t.Context(), vol.ID, node1)
		want(t, err, fault.NotFound, "no such droplet")
		_, err = c.Attach(t.Context(), vol.ID, node2)
		must(t, err)
	})
}

// A7: a droplet that is full is Exhausted, so that the pod goes elsewhere; the volume stays free.
func TestAFullDropletIsExhausted(t *testing.T) {
	account := start(t, emulator.Options{Rules: emulator.Rules{VolumesPerDroplet: 1}})
	c := open(t, account)
	first, second := volume(t, c, "a"), volume(t, c, "b")
	_, err := c.Attach(t.Context(), first.ID, node1)
	must(t, err)
	_, err = c.Attach(t.Context(), second.ID, node1)
	want(t, err, fault.Exhausted, "no free slot")
	at(t, account, second.ID, 0)
}

// Many attaches to one droplet queue here instead of colliding there.
func TestOneDropletTakesItsChangesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Durations: emulator.Actions(clock.Fixed(5 * time.Millisecond))})
		c := open(t, account)
		var ids []cloud.VolumeID
		for n := range 10 {
			ids = append(ids, volume(t, c, fmt.Sprintf("v%d", n)).ID)
		}
		account.ResetStats()
		cloudtest.AtOnce(t, len(ids), func(n int) error { _, err := c.Attach(t.Context(), ids[n], node1); return err })
		stats := account.Stats()
		if stats.MaxParallel[droplet1] != 1 || stats.Writes != len(ids) {
			t.Errorf("%d writes for %d attaches, at most %d at once", stats.Writes, len(ids), stats.MaxParallel[droplet1])
		}
	})
}

// The happy path is one write per call, and reads only to see how an operation stands.
func TestOneWritePerCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Durations: emulator.Actions(clock.Fixed(20 * time.Millisecond))})
		c := stack(open(t, account))
		vol := volume(t, c, "a")
		_, err := c.Attach(t.Context(), vol.ID, node1)
		must(t, err)
		_, err = c.ExpandVolume(t.Context(), vol.ID, 2*cloud.GiB)
		must(t, err)
		must(t, c.Detach(t.Context(), vol.ID, node1))
		must(t, c.DeleteVolume(t.Context(), vol.ID))
		stats := account.Stats()
		if stats.Writes != 5 {
			t.Errorf("%d writes for 5 calls: %v", stats.Writes, stats.Routes)
		}
		for route, n := range stats.Routes {
			// One look at the volume after its growth, so that the answer is what the cloud shows (C5), and one for a
			// wish after its detach.
			most := map[string]int{"GET /v2/volumes/{volume_id}": 2}[route]
			if strings.HasPrefix(route, "GET ") && !strings.Contains(route, "action") && n > most {
				t.Errorf("%d reads of %s on the happy path", n, route)
			}
		}
	})
}

// E3: the repeat of a growth is never answered with a size from before it, and succeeds with the next read that shows it.
func TestTheRepeatOfAGrowthIsNotAnsweredWithAnOldSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		c := open(t, account)
		id := origin(t, c)
		_, err := c.ExpandVolume(t.Context(), id, 3*cloud.GiB)
		must(t, err)
		stale := account.Arm(emulator.Fault{Method: "GET", Route: "/v2/volumes/{volume_id}", Effect: faults.Effect{StaleChanges: 2}})
		if exp, err := c.ExpandVolume(t.Context(), id, 2*cloud.GiB); err == nil {
			t.Errorf("ExpandVolume by a stale read = %+v, want an error", exp)
		}
		stale.Disarm()
		if exp, err := c.ExpandVolume(t.Context(), id, 2*cloud.GiB); err != nil || exp.Size != 3*cloud.GiB {
			t.Errorf("ExpandVolume again = %+v, %v, want 3 GiB", exp, err)
		}
	})
}
