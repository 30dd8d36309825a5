//go:build e2e

package e2e

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/programs"
)

// beside starts the node program of one more machine.
func beside(t *testing.T, pair *programs.Pair) *programs.Pair {
	t.Helper()
	other, err := pair.Beside(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// TestMoveToAnotherMachine: a volume is on one machine at a time, its data goes with it, and its
// attachments are where the controller says they are.
func TestMoveToAnotherMachine(t *testing.T) {
	w, _ := startDigitalOcean(t, emulator.Options{})
	other := beside(t, w.Pair)
	for i, kind := range kinds {
		t.Run(kindName(kind), func(t *testing.T) {
			here := create(t, w.Pair, programs.Claim{Name: "move-" + kindName(kind), Filesystem: kind, Size: gib})
			there := here.On(other)
			must(t, here.Attach, here.Stage, here.Publish)
			write(t, data(here), byte(i), 8*mib)
			wantNodes(t, w.Pair, here.ID, w.NodeID())
			wantCode(t, "attaching where it is not free", there.Attach(t.Context()), codes.FailedPrecondition)
			wantCode(t, "detaching from where it is not", there.Detach(t.Context()), codes.OK)
			wantNodes(t, w.Pair, here.ID, w.NodeID())

			must(t, here.Unpublish, here.Unstage, here.Detach)
			wantNodes(t, w.Pair, here.ID)
			must(t, there.Attach, there.Stage, there.Publish)
			wantBytes(t, data(there), byte(i), 8*mib)
			wantCode(t, "a late detach from the first machine", here.Detach(t.Context()), codes.OK)
			wantNodes(t, w.Pair, here.ID, other.NodeID())
			must(t, there.Unpublish, there.Unstage, there.Detach, there.Delete)
			w.wantNothingLeft(t)
		})
	}
}

// wantNodes checks where the controller lists a volume as attached.
func wantNodes(t *testing.T, pair *programs.Pair, id string, want ...string) {
	t.Helper()
	answer, err := csi.NewControllerClient(pair.Controller.Conn).ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if err != nil {
		t.Fatal(err)
	}
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

// TestMachineThatIsGone (failures A3 and A11 of the catalogue): the detach from a destroyed machine ends
// with success, but not before the volume is free; then it goes on elsewhere with its data.
func TestMachineThatIsGone(t *testing.T) {
	w, account := startDigitalOcean(t, emulator.Options{})
	doomed := beside(t, w.Pair)
	v := create(t, w.Pair, programs.Claim{Name: "orphan", Filesystem: "ext4", Size: gib}).On(doomed)
	must(t, v.Attach, v.Stage, v.Publish)
	write(t, data(v), 1, 8*mib)
	// This machine stands for the one that dies, and must lose its mounts with it.
	must(t, v.Unpublish, v.Unstage)
	doomed.Node.Kill()
	droplet, err := strconv.Atoi(doomed.NodeID())
	if err != nil {
		t.Fatal(err)
	}
	account.RemoveDroplet(droplet, time.Hour) // so long its record goes on naming the machine by itself

	here := v.On(w.Pair)
	eventually(t, "the detach from the destroyed machine succeeds", func() bool { return v.Detach(t.Context()) == nil })
	if now, _ := account.Volume(v.ID); now.DropletID != 0 {
		t.Errorf("detached, and the cloud has it on droplet %d", now.DropletID)
	}
	must(t, here.Attach, here.Stage, here.Publish)
	wantBytes(t, data(here), 1, 8*mib)
	must(t, here.Unpublish, here.Unstage, here.Detach, here.Delete)
	w.wantNothingLeft(t)
}

// TestOnlyIDAndPaths: after the stage the kubelet names a volume by its id and its paths alone, also to a
// node program that has just started.
func TestOnlyIDAndPaths(t *testing.T) {
	for _, kind := range []string{"xfs", "btrfs", ""} {
		t.Run(kindName(kind), func(t *testing.T) {
			w, _ := startDigitalOcean(t, emulator.Options{})
			v := create(t, w.Pair, programs.Claim{Name: "bare", Filesystem: kind, Size: gib})
			neighbour := create(t, w.Pair, programs.Claim{Name: "neighbour", Filesystem: kind, Size: gib})
			must(t, v.Attach, v.Stage, v.Publish, neighbour.Attach, neighbour.Stage, neighbour.Publish)
			write(t, data(v), 1, 8*mib)
			write(t, data(neighbour), 2, 8*mib)
			w.Node.Kill()
			must(t, w.Node.Start)

			controller, node := csi.NewControllerClient(w.Controller.Conn), csi.NewNodeClient(w.Node.Conn)
			stats := func() int64 {
				answer, err := node.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v.ID, VolumePath: v.Target})
				if err != nil || len(answer.GetUsage()) == 0 {
					t.Fatalf("stats = %v, %v", answer, err)
				}
				return answer.GetUsage()[0].GetTotal()
			}
			if got := stats(); got > gib || got < gib*85/100 {
				t.Errorf("stats say %d bytes, want nearly 1 GiB", got)
			}
			_, err := controller.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
				VolumeId: v.ID, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * gib},
			})
			wantCode(t, "growing by id", err, codes.OK)
			_, err = node.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: v.ID, VolumePath: v.Target})
			wantCode(t, "growing on the node by id and path", err, codes.OK)
			if got := stats(); got > 2*gib || got < 2*gib*85/100 {
				t.Errorf("stats say %d bytes after growth, want nearly 2 GiB", got)
			}
			wantBytes(t, data(v), 1, 8*mib)
			must(t, v.Unpublish, v.Unstage, v.Unstage, v.Detach)
			wantBytes(t, data(neighbour), 2, 8*mib)
			must(t, neighbour.Unpublish, neighbour.Unstage, neighbour.Detach, neighbour.Delete, v.Delete)
			w.wantNothingLeft(t)
		})
	}
}

// TestGrowthThatTheCloudRefuses (failure E4 of the catalogue): where a volume cannot grow while it is
// attached, the pod is away for one detach, and comes back to a larger filesystem.
func TestGrowthThatTheCloudRefuses(t *testing.T) {
	w, _ := startDigitalOcean(t, emulator.Options{Rules: emulator.Rules{ResizeRefused: true}})
	v := create(t, w.Pair, programs.Claim{Name: "stubborn", Filesystem: "ext4", Size: gib})
	must(t, v.Attach, v.Stage, v.Publish)
	write(t, data(v), 1, 8*mib)
	wantCode(t, "growing while attached", second(v.Expand(t.Context(), 2*gib)), codes.FailedPrecondition)
	wantBytes(t, data(v), 1, 8*mib)
	must(t, v.Unpublish, v.Unstage, v.Detach, v.Attach, v.Stage, v.Publish)
	if got := filesystemSize(t, v.Target); got < 2*gib*85/100 {
		t.Errorf("the filesystem has %d bytes after the pod was away, want nearly 2 GiB", got)
	}
	wantBytes(t, data(v), 1, 8*mib)
	wantCode(t, "asking for the same growth again", second(v.Expand(t.Context(), 2*gib)), codes.OK)
	must(t, v.Unpublish, v.Unstage, v.Detach, v.Delete)
	w.wantNothingLeft(t)
}
