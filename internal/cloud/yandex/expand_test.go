package yandex_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// E4 and A10: where a cloud does not let an attached disk grow, the answer says what to do, and the same call succeeds
// once the disk is detached, by whatever controller.
func TestAGrowthThatTheCloudRefusesSucceedsAfterTheDetach(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Rules: emulator.Rules{ResizeRefused: true}})
		c, other := open(t, folder), open(t, folder)
		id := attached(t, c)
		before := folder.Stats().Writes
		_, err := c.ExpandVolume(t.Context(), id, 5*cloud.GiB)
		want(t, err, fault.Precondition, machine1, "scale the workload to zero", "attached to non-stopped instance")
		if n := folder.Stats().Writes - before; n != 1 {
			t.Errorf("%d writes, want the refused one only", n)
		}
		must(t, c.Detach(t.Context(), id, node1))
		exp, err := other.ExpandVolume(t.Context(), id, 5*cloud.GiB)
		if err != nil || exp.Size != 5*cloud.GiB {
			t.Errorf("ExpandVolume after the detach = %+v, %v", exp, err)
		}
	})
}

// E3: what can never be is OutOfRange at once.
func TestAGrowthThatCanNeverBe(t *testing.T) {
	folder := start(t, emulator.Options{Rules: emulator.Rules{ResizeRefused: true}})
	c := open(t, folder)
	id := attached(t, c)
	for _, size := range []cloud.Bytes{9 * cloud.TiB, 27 * cloud.TiB, 5 * cloud.TiB} { // above the block size's, the cloud's, and a change's largest
		_, err := c.ExpandVolume(t.Context(), id, size)
		want(t, err, fault.OutOfRange)
	}
}

// A7: a quota that refuses an attach is no lack of slots, for which a pod would be sent to another node.
func TestAQuotaThatRefusesAnAttachIsNoLackOfSlots(t *testing.T) {
	folder := start(t, emulator.Options{})
	c := open(t, folder)
	id := origin(t, c)
	folder.Arm(emulator.Fault{Route: attachDisk, Times: 1, Effect: faults.Effect{Status: int(codes.ResourceExhausted), Message: "Quota limit of something exceeded"}})
	_, err := c.Attach(t.Context(), id, node1)
	want(t, err, fault.Unavailable, "Quota limit")
}
