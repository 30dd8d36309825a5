//go:build e2e

package e2e

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// delta returns the changed ranges from an offset on, or without a base the allocated ones, and the first error. It calls each with
// the number of every message.
func delta(t *testing.T, pair *programs.Pair, base, target *programs.Snapshot, from int64, each func(n int)) (found []*csi.BlockMetadata, err error) {
	t.Helper()
	client := csi.NewSnapshotMetadataClient(pair.Controller.Conn)
	var next func() ([]*csi.BlockMetadata, error)
	if base == nil {
		stream, openErr := client.GetMetadataAllocated(t.Context(), &csi.GetMetadataAllocatedRequest{SnapshotId: target.ID, StartingOffset: from})
		next, err = func() ([]*csi.BlockMetadata, error) {
			m, err := stream.Recv()
			return m.GetBlockMetadata(), err
		}, openErr
	} else {
		stream, openErr := client.GetMetadataDelta(t.Context(), &csi.GetMetadataDeltaRequest{
			BaseSnapshotId: base.ID, TargetSnapshotId: target.ID, StartingOffset: from, MaxResults: 1,
		})
		next, err = func() ([]*csi.BlockMetadata, error) {
			m, err := stream.Recv()
			return m.GetBlockMetadata(), err
		}, openErr
	}
	for n := 1; err == nil; n++ {
		var some []*csi.BlockMetadata
		if some, err = next(); err == nil {
			found = append(found, some...)
			each(n)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return found, err
}

// backUp copies ranges of a snapshot into a file, from a volume restored from it, and wants the file to have all of the snapshot then.
func backUp(t *testing.T, pair *programs.Pair, s *programs.Snapshot, ranges []*csi.BlockMetadata, backup *os.File) (copied int64) {
	t.Helper()
	restored := create(t, pair, programs.Claim{Name: "restored " + s.Name, Size: s.Size, Source: s.Source()})
	must(t, restored.Stage, restored.Publish)
	device, err := os.ReadFile(data(restored))
	noError(t, err)
	noError(t, backup.Truncate(s.Size))
	for _, r := range ranges {
		if _, err := backup.WriteAt(device[r.GetByteOffset():r.GetByteOffset()+r.GetSizeBytes()], r.GetByteOffset()); err != nil {
			t.Fatal(err)
		}
		copied += r.GetSizeBytes()
	}
	saved, err := os.ReadFile(backup.Name())
	if err != nil || !bytes.Equal(saved, device) {
		t.Errorf("the backup of %s is not what the snapshot has: %d of %d bytes, %v", s.Name, len(saved), len(device), err)
	}
	must(t, restored.Unpublish, restored.Unstage, restored.Delete)
	return copied
}

// C16: the blocks that are reported are enough for a backup, and no more; a controller that is killed meanwhile leaves
// nothing, and the next one goes on where it was.
func TestIncrementalBackupOfARawBlockVolume(t *testing.T) {
	t.Parallel()
	pair := startOn(t, "xfs", gib)
	v := create(t, pair, programs.Claim{Name: "raw", Size: 64 * mib})
	must(t, v.Stage, v.Publish)
	write(t, data(v), 1, 24*mib)
	full := snapshot(t, v, "full")
	device, err := os.OpenFile(data(v), os.O_WRONLY, 0)
	noError(t, err)
	defer device.Close()
	block := make([]byte, 4096)
	for at := int64(0); at < 48*mib; at += 2 * 4096 { // more ranges than the connection holds
		_, _ = rand.Read(block)
		if _, err := device.WriteAt(block, at); err != nil {
			t.Fatal(err)
		}
	}
	noError(t, errors.Join(device.Sync(), device.Close()))
	if _, err := v.Expand(t.Context(), 80*mib); err != nil {
		t.Fatal(err)
	}
	next := snapshot(t, v, "next")

	backup, err := os.Create(t.TempDir() + "/backup")
	noError(t, err)
	defer backup.Close()
	allocated, err := delta(t, pair, nil, full, 0, func(int) {})
	noError(t, err)
	if copied := backUp(t, pair, full, allocated, backup); copied != 24*mib {
		t.Errorf("%d bytes are allocated, want %d", copied, 24*mib)
	}
	changed, err := delta(t, pair, full, next, 0, func(n int) {
		if n == 7 {
			pair.Controller.Kill()
		}
	})
	if len(changed) == 0 || err == nil {
		t.Fatalf("%d ranges came from a controller that was killed: %v", len(changed), err)
	}
	noError(t, pair.Controller.Start(t.Context()))
	last := changed[len(changed)-1]
	rest, err := delta(t, pair, full, next, last.GetByteOffset()+last.GetSizeBytes(), func(int) {})
	noError(t, err)
	t.Logf("%d ranges came before the controller was killed, %d later", len(changed), len(rest))
	if copied := backUp(t, pair, next, append(changed, rest...), backup); copied != 24*mib {
		t.Errorf("%d bytes are reported, want %d", copied, 24*mib)
	}
	must(t, full.Delete)
	_, err = delta(t, pair, full, next, 0, func(int) {})
	wantCode(t, "a base that is gone", err, codes.NotFound)
	must(t, next.Delete, v.Unpublish, v.Unstage, v.Delete)
	wantEmptyPool(t, pair)
}
