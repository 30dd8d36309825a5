//go:build e2e

package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// beside starts the node program of one more machine.
func beside(t *testing.T, pair *programs.Pair) *programs.Pair {
	t.Helper()
	other, err := pair.Beside(t.Context())
	noError(t, err)
	return other
}

// A1, A9: a volume is on one machine at a time, its data goes with it, and its attachments are where the controller says
// they are.
func TestMoveToAnotherMachine(t *testing.T) {
	t.Parallel()
	for _, where := range clouds {
		t.Run(where.name, func(t *testing.T) {
			w := where.start(t)
			other := beside(t, w.Pair)
			for i, kind := range kinds {
				t.Run(kindName(kind), func(t *testing.T) {
					here := create(t, w.Pair, programs.Claim{Name: "move-" + kindName(kind), Filesystem: kind, Size: where.size})
					w.move(t, here, here.On(other), byte(i))
				})
			}
		})
	}
}

func (w world) move(t *testing.T, here, there *programs.Volume, seed byte) {
	t.Helper()
	must(t, here.Attach, here.Stage, here.Publish)
	write(t, data(here), seed, 8*mib)
	wantNodes(t, w.Pair, here.ID, here.Node())
	wantCode(t, "attaching where it is not free", there.Attach(t.Context()), codes.FailedPrecondition)
	wantCode(t, "detaching from where it is not", there.Detach(t.Context()), codes.OK)
	wantNodes(t, w.Pair, here.ID, here.Node())

	must(t, here.Unpublish, here.Unstage, here.Detach)
	wantNodes(t, w.Pair, here.ID)
	must(t, there.Attach, there.Stage, there.Publish)
	wantBytes(t, data(there), seed, 8*mib)
	wantCode(t, "a late detach from the first machine", here.Detach(t.Context()), codes.OK)
	wantNodes(t, w.Pair, here.ID, there.Node())
	must(t, there.Unpublish, there.Unstage, there.Detach, there.Delete)
	w.wantNothingLeft(t)
}

// wantNodes checks where the controller lists a volume as attached.
func wantNodes(t *testing.T, pair *programs.Pair, id string, want ...string) {
	t.Helper()
	answer, err := csi.NewControllerClient(pair.Controller.Conn).ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	noError(t, err)
	for _, entry := range answer.GetEntries() {
		if entry.GetVolume().GetVolumeId() == id {
			if got := entry.GetStatus().GetPublishedNodeIds(); !slices.Equal(got, want) {
				t.Errorf("volume %s is listed as attached to %v, want %v", id, got, want)
			}
			return
		}
	}
	t.Errorf("volume %s is not in the list", id)
}

// A3, A11: the detach from a destroyed machine ends with success, but not before the volume is free; then it goes on
// elsewhere with its data.
func TestMachineThatIsGone(t *testing.T) {
	t.Parallel()
	for _, where := range clouds {
		t.Run(where.name, func(t *testing.T) {
			w := where.start(t)
			doomed := beside(t, w.Pair)
			v := create(t, w.Pair, programs.Claim{Name: "orphan", Filesystem: "ext4", Size: where.size}).On(doomed)
			must(t, v.Attach, v.Stage, v.Publish)
			write(t, data(v), 1, 8*mib)
			// This machine stands for the one that dies, and must lose its mounts with it.
			must(t, v.Unpublish, v.Unstage)
			doomed.Node.Kill()
			w.account.RemoveMachine(doomed.NodeID(), time.Hour) // so long its record goes on naming the machine by itself

			here := v.On(w.Pair)
			eventually(t, "the detach from the destroyed machine succeeds", func() bool { return v.Detach(t.Context()) == nil })
			if on := accounts.Find(w.account, v.ID).Machine; on != "" {
				t.Errorf("detached, and the cloud has it on machine %s", on)
			}
			must(t, here.Attach, here.Stage, here.Publish)
			wantBytes(t, data(here), 1, 8*mib)
			must(t, here.Unpublish, here.Unstage, here.Detach, here.Delete)
			w.wantNothingLeft(t)
		})
	}
}

// TestOnlyIDAndPaths: after the stage the kubelet names a volume by its id and its paths alone, also to a
// node program that has just started.
func TestOnlyIDAndPaths(t *testing.T) {
	t.Parallel()
	for _, where := range clouds {
		for _, kind := range []string{"xfs", ""} {
			t.Run(where.name+", "+kindName(kind), func(t *testing.T) { liveByID(t, where.place, kind) })
		}
	}
}

func liveByID(t *testing.T, where place, kind string) {
	w := where.start(t)
	v := create(t, w.Pair, programs.Claim{Name: "bare", Filesystem: kind, Size: where.size})
	neighbour := create(t, w.Pair, programs.Claim{Name: "neighbour", Filesystem: kind, Size: where.size})
	must(t, v.Attach, v.Stage, v.Publish, neighbour.Attach, neighbour.Stage, neighbour.Publish)
	write(t, data(v), 1, 8*mib)
	write(t, data(neighbour), 2, 8*mib)
	w.Node.Kill()
	must(t, w.Node.Start)

	controller, node := csi.NewControllerClient(w.Controller.Conn), csi.NewNodeClient(w.Node.Conn)
	wantNearly := func(what string, size int64) {
		t.Helper()
		answer, err := node.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v.ID, VolumePath: v.Target})
		if err != nil || len(answer.GetUsage()) == 0 {
			t.Fatalf("stats = %v, %v", answer, err)
		}
		if got := answer.GetUsage()[0].GetTotal(); got > size || got < size*85/100 {
			t.Errorf("stats say %d bytes %s, want nearly %d", got, what, size)
		}
	}
	wantNearly("of a new volume", where.size)
	_, err := controller.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: v.ID, CapacityRange: &csi.CapacityRange{RequiredBytes: where.grown},
	})
	wantCode(t, "growing by id", err, codes.OK)
	grow := func() error {
		return second(node.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{
			VolumeId: v.ID, VolumePath: v.Target, CapacityRange: &csi.CapacityRange{RequiredBytes: where.grown},
		}))
	}
	if !where.growsInUse {
		wantCode(t, "growing on the node before it comes again", grow(), codes.FailedPrecondition)
		wantNearly("that the machine does not see grow", where.size)
		must(t, v.Unpublish, v.Unstage, v.Detach, v.Attach, v.Stage, v.Publish)
	}
	wantCode(t, "growing on the node by id and path", grow(), codes.OK)
	wantNearly("after growth", where.grown)
	wantBytes(t, data(v), 1, 8*mib)
	must(t, v.Unpublish, v.Unstage, v.Unstage, v.Detach)
	wantBytes(t, data(neighbour), 2, 8*mib)
	must(t, neighbour.Unpublish, neighbour.Unstage, neighbour.Detach, neighbour.Delete, v.Delete)
	w.wantNothingLeft(t)
}
