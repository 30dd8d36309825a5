package digitalocean_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// E3: nor is the copy that a repeated create finds at a size that its growth may still take back.
func TestACopyIsNotAnsweredWhileItsGrowthRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Rules: emulator.Rules{ChangeOnAccept: true}})
		c := stack(open(t, account))
		copied := request("copy")
		copied.Source.Volume, copied.Size = origin(t, c), 5*cloud.GiB
		account.Arm(emulator.Fault{Method: "POST", Body: `"resize"`, Times: 1, Effect: faults.Effect{Errored: true, Takes: clock.Fixed(20 * time.Second)}})
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			vol, err := c.CreateVolume(ctx, copied)
			cancel()
			want(t, err, fault.Uncertain)
			if err == nil {
				t.Errorf("CreateVolume while the copy grows = %+v", vol)
			}
		}
		vol, err := c.CreateVolume(t.Context(), copied)
		must(t, err)
		for _, v := range account.Volumes() {
			if v.ID == string(vol.ID) && (v.SizeGiB != 5 || vol.Size != 5*cloud.GiB) {
				t.Errorf("CreateVolume after the growth has failed = %s, and the copy has %d GiB", vol.Size, v.SizeGiB)
			}
		}
	})
}

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
