package digitalocean_test

import (
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
	return create(t, c, request(name))
}

var (
	must, want, until            = cloudtest.Must, cloudtest.Want, cloudtest.Until
	create, takeSnapshot, attach = cloudtest.CreateVolume, cloudtest.CreateSnapshot, cloudtest.AttachTo
)

// droplets fails the test unless the account shows the volume at exactly this droplet (0: at none).
func at(t *testing.T, account *emulator.Cloud, id cloud.VolumeID, droplet int) {
	t.Helper()
	vol, found := account.Volume(string(id))
	if !found || vol.DropletID != droplet {
		t.Errorf("volume %s is at droplet %d (exists: %v), want %d", id, vol.DropletID, found, droplet)
	}
}

// A8: the cloud reports an errored action and not why: the answer says what to do.
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
