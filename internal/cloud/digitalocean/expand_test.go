package digitalocean_test

import (
	"testing"
	"testing/synctest"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// E4: where a droplet does not let a volume grow, the answer says what to do, and the same call succeeds once the
// volume is detached, by whatever controller.
func TestAGrowthThatTheDropletRefusesSucceedsAfterTheDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Rules: emulator.Rules{ResizeRefused: true}})
		c, other := open(t, account), open(t, account)
		id := attached(t, c)
		before := account.Stats().Writes
		_, err := c.ExpandVolume(t.Context(), id, 5*cloud.GiB)
		want(t, err, fault.Precondition, "droplet 101", "scale the workload to zero")
		if n := account.Stats().Writes - before; n != 1 {
			t.Errorf("%d writes, want the refused one only", n)
		}
		must(t, c.Detach(t.Context(), id, node1))
		exp, err := other.ExpandVolume(t.Context(), id, 5*cloud.GiB)
		if err != nil || exp.Size != 5*cloud.GiB {
			t.Errorf("ExpandVolume after the detach = %+v, %v", exp, err)
		}
	})
}

// A7: a quota that refuses an attach is no lack of slots, for which a pod would be sent to another node.
func TestAQuotaThatRefusesAnAttachIsNoLackOfSlots(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	id := origin(t, c)
	account.Arm(emulator.Fault{Method: "POST", Body: `"attach"`, Times: 1, Effect: faults.Effect{Status: 403, Message: "account limit exceeded"}})
	_, err := c.Attach(t.Context(), id, node1)
	want(t, err, fault.Unavailable, "account limit exceeded")
}
