package linode_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// C1: a list that still shows a volume that was deleted does not give it to the repeat of its create: the claim would get a volume that
// does not exist.
func TestACreateDoesNotFindADeletedVolumeInAStaleList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		c := stack(open(t, account))
		vol := volume(t, c, "a")
		time.Sleep(10 * time.Second)
		must(t, c.DeleteVolume(t.Context(), vol.ID))
		time.Sleep(time.Second)
		account.Arm(emulator.Fault{Method: "GET", Route: volumesRoute, Effect: faults.Effect{StaleAge: clock.Fixed(5 * time.Second)}})
		account.Arm(emulator.Fault{Method: "POST", Route: volumesRoute, Times: 1, Effect: faults.Effect{Lost: faults.LostBefore}})
		_, err := c.CreateVolume(t.Context(), request("a"))
		want(t, err, fault.Uncertain)
		made, err := c.CreateVolume(t.Context(), request("a"))
		must(t, err)
		at(t, account, made.ID, 0) // it exists
		if made.ID == vol.ID {
			t.Errorf("the create has returned %s, which was deleted", made.ID)
		}
	})
}
