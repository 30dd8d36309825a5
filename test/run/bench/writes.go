package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

const (
	writeBar    = 0.9
	writeBytes  = 256 << 20
	writeBlock  = 1 << 20
	writeRounds = 7
)

// writes compares direct writes to a staged volume with direct writes to the same image through a
// loop device that was set up by hand.
func writes(ctx context.Context, t *table, pair *programs.Pair, mountpoint string) error {
	v, err := pair.Create(ctx, programs.Claim{Name: "bench-writes", Filesystem: "ext4", Size: gib})
	if err != nil {
		return err
	}
	image := filepath.Join(pair.Pool(), "volumes", filepath.Base(v.ID)+".img")
	var staged, byHand []time.Duration
	for range writeRounds {
		if err := v.Stage(ctx); err != nil {
			return err
		}
		took, err := writeDirect(filepath.Join(v.Staging, "data"))
		if err := errors.Join(err, v.Unstage(ctx)); err != nil {
			return err
		}
		staged = append(staged, took)

		err = withLoop(ctx, image, mountpoint, func() (err error) {
			took, err = writeDirect(filepath.Join(mountpoint, "data"))
			return err
		})
		if err != nil {
			return err
		}
		byHand = append(byHand, took)
	}
	volume, hand := mibPerSecond(median(staged)), mibPerSecond(median(byHand))
	t.row("direct writes to a staged ext4 volume", volume, 0, "MiB/s")
	t.row("direct writes through a loop device set up by hand", hand, 0, "MiB/s")
	t.least("staged over by hand", volume/hand, writeBar, "x")
	return v.Delete(ctx)
}

func mibPerSecond(took time.Duration) float64 { return writeBytes / mib / took.Seconds() }

// writeDirect overwrites a file of a fixed size past the page cache. The first call makes the file, so
// that what is compared are overwrites of allocated blocks.
func writeDirect(path string) (time.Duration, error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if _, err := overwrite(path); err != nil {
			return 0, err
		}
	}
	return overwrite(path)
}

func overwrite(path string) (time.Duration, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|unix.O_DIRECT, 0o600)
	if err != nil {
		return 0, err
	}
	// O_DIRECT wants an aligned buffer; a page is aligned for every device.
	buf, err := unix.Mmap(-1, 0, writeBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return 0, errors.Join(err, f.Close())
	}
	took, err := timed(func() error {
		for at := int64(0); at < writeBytes; at += writeBlock {
			*(*int64)(unsafe.Pointer(&buf[0])) = at // no two blocks are alike
			if _, err := f.WriteAt(buf, at); err != nil {
				return fmt.Errorf("write %s at %d: %w", path, at, err)
			}
		}
		return f.Sync()
	})
	return took, errors.Join(err, unix.Munmap(buf), f.Close())
}
