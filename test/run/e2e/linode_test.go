//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

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

// C13: after its creation a volume is its id alone. Whatever somebody calls it, and whenever, it comes and goes with its
// data.
func TestRenamedVolume(t *testing.T) {
	t.Parallel()
	w, account := startLinode(t)
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
	noError(t, err)
	noError(t, account.Rename(number, label))
}

// stageSoon stages a volume for a caller that is in a hurry.
func stageSoon(t *testing.T, v *programs.Volume) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return v.Stage(ctx)
}
