//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// E1, E3, E5: where a machine sees a larger volume only after the volume has come again, the cloud's part is done at
// once, the node never claims the rest, and the next stage does it. The repeats are OK also where the cloud refuses to
// grow a volume to the size that it has.
func TestGrowthThatTheMachineSeesLater(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]linode.Rules{"as usual": {}, "strict": {ResizeToSameRefused: true, DetachOfFreeRefused: true}} {
		for _, kind := range kinds {
			t.Run(kindName(kind)+", "+name, func(t *testing.T) {
				w, account := startLinode(t, linode.Options{Rules: rules}, linode.Linode{})
				v := create(t, w.Pair, programs.Claim{Name: "grows", Filesystem: kind, Size: 10 * gib})
				must(t, v.Attach, v.Stage, v.Publish)
				write(t, data(v), 1, 8*mib)
				for range 2 {
					_, err := v.Expand(t.Context(), 20*gib)
					wantCode(t, "growing in use", err, codes.FailedPrecondition)
					if err != nil && !strings.Contains(err.Error(), "VolumeAttachment") {
						t.Errorf("the advice is %q, want it to say what has to go first", err)
					}
					w.Controller.Kill()
					w.Node.Kill()
					must(t, w.Controller.Start, w.Node.Start)
				}
				wantSize(t, account, v.ID, 20)
				wantBytes(t, data(v), 1, 8*mib)

				must(t, v.Unpublish, v.Unstage, v.Detach, v.Attach, v.Stage, v.Publish)
				wantGrown(t, v, 20*gib)
				if seesGrowth(t, kind) {
					wantCode(t, "the node's part, asked again", second(v.Expand(t.Context(), 20*gib)), codes.OK)
				}

				must(t, v.Unpublish, v.Unstage, v.Detach)
				_, err := csi.NewControllerClient(w.Controller.Conn).ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
					VolumeId: v.ID, CapacityRange: &csi.CapacityRange{RequiredBytes: 30 * gib},
				})
				wantCode(t, "growing while no pod has it", err, codes.OK)
				must(t, v.Attach, v.Stage, v.Publish)
				wantGrown(t, v, 30*gib)
				wantBytes(t, data(v), 1, 8*mib)
				must(t, v.Unpublish, v.Unstage, v.Detach, v.Detach, v.Delete)
				w.wantNothingLeft(t)
			})
		}
	}
}

func wantSize(t *testing.T, account *linode.Cloud, id string, gib int) {
	t.Helper()
	number, err := strconv.Atoi(id)
	if err != nil {
		t.Fatal(err)
	}
	if v, found := account.Volume(number); !found || v.SizeGiB != gib || v.Status != "active" {
		t.Errorf("the cloud has %+v (%v), want %d GiB, active", v, found, gib)
	}
}

// wantGrown checks that what a pod sees has a size.
func wantGrown(t *testing.T, v *programs.Volume, size int64) {
	t.Helper()
	if !seesGrowth(t, v.Filesystem) {
		return
	}
	usage, err := v.Stats(t.Context())
	if got := usage[csi.VolumeUsage_BYTES].GetTotal(); err != nil || got > size || got < size*85/100 {
		t.Errorf("stats say %d bytes (%v), want nearly %d", got, err, size)
	}
}

// C3, C5, C9, C10: a clone has the size that was asked for, in the answer, in the cloud and in its filesystem, and its
// source's data beside its source.
func TestCloneThatIsLarger(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kindName(kind), func(t *testing.T) {
			w, account := startLinode(t, linode.Options{}, linode.Linode{})
			source := create(t, w.Pair, programs.Claim{Name: "source", Filesystem: kind, Size: 10 * gib})
			must(t, source.Attach, source.Stage, source.Publish)
			write(t, data(source), 1, 8*mib)
			claim := programs.Claim{Name: "clone", Filesystem: kind, Size: 20 * gib, Source: source.Source()}
			clone := create(t, w.Pair, claim)
			if again := create(t, w.Pair, claim); clone.Size != 20*gib || again.Size != clone.Size || again.ID != clone.ID {
				t.Errorf("the clone is %s of %d bytes, asked again %s of %d, want one of 20 GiB", clone.ID, clone.Size, again.ID, again.Size)
			}
			wantSize(t, account, clone.ID, 20)
			wantSize(t, account, source.ID, 10)
			must(t, clone.Attach, clone.Stage, clone.Publish)
			wantBytes(t, data(clone), 1, 8*mib)
			wantGrown(t, clone, 20*gib)
			must(t, clone.Unpublish, clone.Unstage, clone.Detach, clone.Delete)
			wantBytes(t, data(source), 1, 8*mib)
			must(t, source.Unpublish, source.Unstage, source.Detach)
			must(t, source.Delete)
			w.wantNothingLeft(t)
		})
	}
}

// A5, A6, A7: a machine reports as many volumes as it can have beside its disks, takes so many, and one more is
// ResourceExhausted.
func TestTheLimitOfAMachine(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name       string
		gib, disks int
		reports    int64
		fits       int
	}{
		{"8 GiB with two disks", 8, 2, 6, 6},
		{"16 GiB with two disks", 16, 2, 14, 14},
		{"96 GiB with two disks", 96, 2, 62, 0},
		{"1 GiB with disks in all places", 1, 8, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, account := startLinode(t, linode.Options{}, linode.Linode{MemoryMB: row.gib << 10, Disks: row.disks})
			if got := w.MaxVolumes(); got != row.reports {
				t.Errorf("the node reports %d volumes, want %d", got, row.reports)
			}
			if row.gib > 16 {
				return
			}
			var there []*programs.Volume
			for i := range row.fits {
				v := create(t, w.Pair, programs.Claim{Name: name("fits-", i), Size: 10 * gib})
				must(t, v.Attach)
				there = append(there, v)
			}
			more := create(t, w.Pair, programs.Claim{Name: "one-more", Size: 10 * gib})
			wantCode(t, "attaching one more", more.Attach(t.Context()), codes.ResourceExhausted)
			if on := accounts.Find(w.account, more.ID).Machine; on != "" || len(account.Volumes()) != row.fits+1 {
				t.Errorf("the refused volume is on machine %s, of %d volumes", on, len(account.Volumes()))
			}
			if row.fits > 0 {
				must(t, there[0].Detach, more.Attach, more.Detach)
			}
			for _, v := range append(there, more) {
				must(t, v.Detach, v.Delete)
			}
			w.wantNothingLeft(t)
		})
	}
}

// C13: after its creation a volume is its id alone. Whatever somebody calls it, and whenever, it comes and goes with its
// data.
func TestRenamedVolume(t *testing.T) {
	t.Parallel()
	w, account := startLinode(t, linode.Options{}, linode.Linode{})
	devices := filepath.Join(w.Dir(), "by-id")
	for _, kind := range kinds {
		t.Run(kindName(kind), func(t *testing.T) {
			v := create(t, w.Pair, programs.Claim{Name: "first-" + kindName(kind), Filesystem: kind, Size: 10 * gib})
			rename(t, account, v.ID, "before-it-came")
			must(t, v.Attach, v.Stage, v.Publish)
			write(t, data(v), 1, 8*mib)
			rename(t, account, v.ID, "while-it-is-used")
			// What the first attach told is kept: the machine goes on calling the disk what it was called then.
			must(t, v.On(w.Pair).Attach, v.Stage, v.Publish)
			wantBytes(t, data(v), 1, 8*mib)
			must(t, v.Unpublish, v.Unstage)
			told := v.Published
			must(t, v.Attach) // once more, as by an attacher that has lost what it was told
			if err := stageSoon(t, v); err == nil {
				t.Error("staging under a name that the machine has never heard = nil")
			}
			v.Published = told
			eventually(t, "the node goes on", func() bool { return status.Code(v.Stage(t.Context())) != codes.Aborted })
			must(t, v.Stage, v.Publish)
			wantBytes(t, data(v), 1, 8*mib)
			wantCode(t, "growing a renamed volume", second(v.Expand(t.Context(), 20*gib)), codes.FailedPrecondition)
			must(t, v.Unpublish, v.Unstage, v.Detach)
			must(t, v.Attach, v.Stage, v.Publish)
			if _, err := os.Lstat(filepath.Join(devices, "scsi-0Linode_Volume_while-it-is-used")); err != nil {
				t.Errorf("the machine does not know the new name, so this proves nothing: %v", err)
			}
			wantBytes(t, data(v), 1, 8*mib)
			wantGrown(t, v, 20*gib)
			clone := create(t, w.Pair, programs.Claim{Name: "of-renamed-" + kindName(kind), Filesystem: kind, Size: 20 * gib, Source: v.Source()})
			must(t, clone.Delete, v.Unpublish, v.Unstage, v.Detach, v.Delete)
			w.wantNothingLeft(t)
		})
	}
}

func rename(t *testing.T, account *linode.Cloud, id, label string) {
	t.Helper()
	number, err := strconv.Atoi(id)
	if err == nil {
		err = account.Rename(number, label)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A10, A11: the cloud's record names the machine as soon as an attach is asked for, and goes on doing so until a detach
// is over. Neither moment counts as attached or free, not even for a controller that has just started.
func TestAClaimIsNoAttachment(t *testing.T) {
	t.Parallel()
	w, account := startLinode(t, linode.Options{}, linode.Linode{})
	v := create(t, w.Pair, programs.Claim{Name: "claimed", Filesystem: "ext4", Size: 10 * gib})
	id, err := strconv.Atoi(v.ID)
	if err != nil {
		t.Fatal(err)
	}
	const slow = 1500 * time.Millisecond
	account.SetDurations(linode.Durations{Attach: clock.Fixed(slow), Detach: clock.Fixed(slow)})
	for _, half := range []struct {
		what  string
		do    func(context.Context) error
		begun func(linode.Volume) bool
		over  func(linode.Volume) bool
	}{
		{"attach", v.Attach, func(v linode.Volume) bool { return v.Linode != 0 }, func(v linode.Volume) bool { return v.IOReady }},
		{"detach", v.Detach, func(v linode.Volume) bool { return !v.IOReady }, func(v linode.Volume) bool { return v.Linode == 0 }},
	} {
		cut := make(chan error, 1)
		go func() { cut <- half.do(t.Context()) }()
		eventually(t, "the cloud begins the "+half.what, func() bool {
			now, _ := account.Volume(id)
			return half.begun(now)
		})
		w.Controller.Kill()
		wantCode(t, "the "+half.what+" that was cut off", <-cut, codes.Unavailable)
		must(t, w.Controller.Start, half.do)
		if now, _ := account.Volume(id); !half.over(now) {
			t.Errorf("the %s is answered while the volume is %+v", half.what, now)
		}
	}
	must(t, v.Delete)
	w.wantNothingLeft(t)
}

// A13: an attachment survives a boot of its machine, so the pod has its data again by the node's steps alone. Where the
// configuration has no slot for it, the list says so and the attacher attaches again.
func TestABootKeepsTheVolume(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]linode.Rules{"attachments persist": {}, "the configuration has no slots": {ConfigSlots: 1}} {
		for _, kind := range kinds {
			t.Run(kindName(kind)+", "+name, func(t *testing.T) {
				w, account := startLinode(t, linode.Options{Rules: rules}, linode.Linode{})
				v := create(t, w.Pair, programs.Claim{Name: "boots", Filesystem: kind, Size: 10 * gib})
				must(t, v.Attach, v.Stage, v.Publish)
				write(t, data(v), 1, 8*mib)
				w.Node.Kill()
				unmountAll(t, v)
				account.Reboot(account.Linodes()[0])
				must(t, w.Node.Start)
				if rules.ConfigSlots > 0 {
					wantNodes(t, w.Pair, v.ID)
					must(t, v.Attach)
				}
				wantNodes(t, w.Pair, v.ID, v.Node())
				must(t, v.Stage, v.Publish)
				wantBytes(t, data(v), 1, 8*mib)
				must(t, v.Unpublish, v.Unstage, v.Detach, v.Delete)
				w.wantNothingLeft(t)
			})
		}
	}
}

// TestSnapshotsAreRefusedWithAdvice: the cloud has no snapshots of volumes, and whoever asks for one is told
// what there is instead.
func TestSnapshotsAreRefusedWithAdvice(t *testing.T) {
	t.Parallel()
	w, _ := startLinode(t, linode.Options{}, linode.Linode{})
	v := create(t, w.Pair, programs.Claim{Name: "source", Filesystem: "ext4", Size: 10 * gib})
	if w.Snapshots() {
		t.Error("the controller advertises snapshots")
	}
	_, err := v.Snapshot(t.Context(), "snapshot")
	wantCode(t, "a snapshot", err, codes.Unimplemented)
	if err != nil && !strings.Contains(err.Error(), "dataSource") {
		t.Errorf("the refusal is %q, want it to say how to make a copy", err)
	}
	must(t, v.Delete)
}

// stageSoon stages a volume for a caller that is in a hurry.
func stageSoon(t *testing.T, v *programs.Volume) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return v.Stage(ctx)
}
