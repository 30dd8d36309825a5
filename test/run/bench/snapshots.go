package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

const (
	gib = int64(1) << 30
	// bigVolume is the size whose snapshots are timed.
	bigVolume = 100 * gib

	reflinkBar    = 1.3
	reflinkEnough = 200 * time.Millisecond // below this nobody waits, whatever the ratio
)

// snapshots compares a snapshot of 100 GiB with what cp takes for the same file, both by reflink.
func snapshots(ctx context.Context, t *table, bin, dir string) error {
	mountpoint, err := programs.Disk(ctx, dir, "xfs", 4*bigVolume)
	if err != nil {
		return err
	}
	const flag = "--reflink=always"
	program, cp, err := compareSnapshot(ctx, bin, mountpoint, flag, 5, func(image string) error {
		return spread(image, bigVolume, 1000, 64<<10)
	})
	if err != nil {
		return fmt.Errorf("snapshot by reflink: %w", err)
	}
	t.row("snapshot of 100 GiB by reflink", ms(program), 0, "ms")
	t.row("cp "+flag+" of the same file", ms(cp), 0, "ms")
	bar := reflinkBar
	if program <= reflinkEnough {
		bar = 0 // the ratio does not count
	}
	t.row("snapshot by reflink over cp", float64(program)/float64(cp), bar, "x")
	return nil
}

// compareSnapshot returns the medians of both on one volume, measured in turn.
func compareSnapshot(ctx context.Context, bin, mountpoint, flag string, rounds int, fill func(image string) error) (program, cp time.Duration, err error) {
	dir := mountpoint + ".run"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, 0, err
	}
	pair, err := programs.Start(ctx, programs.Options{Bin: bin, Dir: dir, Pool: mountpoint, Flags: []string{"--log-level=warn"}})
	if err != nil {
		return 0, 0, err
	}
	defer pair.Stop()
	v, err := pair.Create(ctx, programs.Claim{Name: "bench-snapshot", Filesystem: "ext4", Size: bigVolume})
	if err != nil {
		return 0, 0, err
	}
	image := filepath.Join(pair.Pool(), "volumes", filepath.Base(v.ID)+".img")
	if err := fill(image); err != nil {
		return 0, 0, err
	}
	var byProgram, byCp []time.Duration
	for i := range rounds {
		took, err := snapshotOnce(ctx, pair, v.ID, i)
		if err != nil {
			return 0, 0, err
		}
		byProgram = append(byProgram, took)
		target := filepath.Join(mountpoint, "copy.img")
		took, err = timed(func() error {
			// A snapshot is durable when the call returns, so the copy has to be, too.
			return errors.Join(command(ctx, "cp", flag, image, target), command(ctx, "sync", target))
		})
		if err := errors.Join(err, os.Remove(target)); err != nil {
			return 0, 0, err
		}
		byCp = append(byCp, took)
	}
	return median(byProgram), median(byCp), v.Delete(ctx)
}

// snapshotOnce makes a snapshot, waits until it is ready and removes it; only the making is timed.
func snapshotOnce(ctx context.Context, pair *programs.Pair, volume string, round int) (time.Duration, error) {
	controller := csi.NewControllerClient(pair.Controller.Conn)
	req := &csi.CreateSnapshotRequest{SourceVolumeId: volume, Name: fmt.Sprint("bench-", round)}
	var id string
	took, err := timed(func() error {
		for {
			answer, err := controller.CreateSnapshot(ctx, req)
			if err != nil {
				return err
			}
			if id = answer.GetSnapshot().GetSnapshotId(); answer.GetSnapshot().GetReadyToUse() {
				return nil
			}
		}
	})
	if err != nil {
		return 0, err
	}
	_, err = controller.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id})
	return took, err
}

// spread writes data in pieces all over a file, so that it is sparse but not empty.
func spread(path string, size, pieces, piece int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	data := make([]byte, piece)
	for i := range data {
		data[i] = byte(i*7 + 1)
	}
	for i := range pieces {
		if _, err := f.WriteAt(data, size/pieces*i); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(f.Sync(), f.Close())
}
