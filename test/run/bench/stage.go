package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// This file is what a volume's user waits for, next to the same by hand: the stages, and the writes to a staged volume.

// stageBar is how many times what is done by hand a stage may take, of a formatted volume and of a blank one.
const stageBar = 1.3

// stage compares staging a formatted 1 GiB ext4 volume with checking and mounting the same filesystem
// by hand. By hand the loop device is there already; the program also makes and proves its own.
func stage(ctx context.Context, t *table, pair *programs.Pair, mountpoint string, rounds int) error {
	v, err := pair.Create(ctx, programs.Claim{Name: "bench-stage", Filesystem: "ext4", Size: 1 << 30})
	if err != nil {
		return err
	}
	if err := errors.Join(v.Stage(ctx), v.Unstage(ctx)); err != nil {
		return err
	}
	image := filepath.Join(pair.Pool(), "volumes", filepath.Base(v.ID)+".img")
	var byProgram, byHand []time.Duration
	for range rounds {
		begin := time.Now()
		if err := v.Stage(ctx); err != nil {
			return err
		}
		byProgram = append(byProgram, time.Since(begin))
		if err := v.Unstage(ctx); err != nil {
			return err
		}
		took, err := mountAfter(ctx, image, mountpoint, "fsck", "-a")
		if err != nil {
			return err
		}
		byHand = append(byHand, took)
	}
	program, hand := median(byProgram), median(byHand)
	t.row("stage of a formatted 1 GiB ext4 volume", ms(program), 0, "ms")
	t.row("fsck + mount of the same by hand", ms(hand), 0, "ms")
	t.row("stage over fsck + mount by hand", float64(program)/float64(hand), stageBar, "x")
	return v.Delete(ctx)
}

// firstStage compares the stage of a blank 1 GiB volume with mkfs.ext4 and mount by hand. The program also makes its loop
// device, proves that it is blank and marks it while mkfs runs. By hand nothing is proven, so mkfs.ext4 writes zeros, which
// the pool's proof (assume_storage_prezeroed) spares the program.
func firstStage(ctx context.Context, t *table, pair *programs.Pair, mountpoint string, rounds int) error {
	var byProgram, byHand []time.Duration
	for i := range rounds {
		v, err := pair.Create(ctx, programs.Claim{Name: fmt.Sprintf("bench-first-%d", i), Filesystem: "ext4", Size: 1 << 30})
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := v.Stage(ctx); err != nil {
			return err
		}
		byProgram = append(byProgram, time.Since(begin))
		if err := errors.Join(v.Unstage(ctx), v.Delete(ctx)); err != nil {
			return err
		}
		image := filepath.Join(pair.Pool(), fmt.Sprintf("first-%d.img", i))
		if err := command(ctx, "fallocate", "-l", "1G", image); err != nil {
			return err
		}
		took, err := mountAfter(ctx, image, mountpoint, "mkfs.ext4", "-q", "-F", "-m", "0", "-e", "remount-ro", "-E", "nodiscard")
		if err := errors.Join(err, os.Remove(image)); err != nil {
			return err
		}
		byHand = append(byHand, took)
	}
	program, hand := median(byProgram), median(byHand)
	t.row("first stage of a blank 1 GiB ext4 volume", ms(program), 0, "ms")
	t.row("mkfs.ext4 + mount of the same by hand", ms(hand), 0, "ms")
	t.row("first stage over mkfs.ext4 + mount by hand", float64(program)/float64(hand), stageBar, "x")
	return nil
}

// mountAfter returns how long a command on a loop device that is there already, and mount, take.
func mountAfter(ctx context.Context, image, mountpoint, name string, args ...string) (took time.Duration, err error) {
	loop, err := attach(ctx, image)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, command(ctx, "losetup", "-d", loop)) }()
	took, err = timed(func() error {
		if err := command(ctx, name, append(args, loop)...); err != nil {
			return err
		}
		return command(ctx, "mount", loop, mountpoint)
	})
	if err != nil {
		return 0, err
	}
	return took, command(ctx, "umount", mountpoint)
}

func command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// attach makes a loop device the way an operator would.
func attach(ctx context.Context, image string) (string, error) {
	loop, err := exec.CommandContext(ctx, "losetup", "--direct-io=on", "--find", "--show", image).Output()
	if err != nil {
		return "", fmt.Errorf("losetup: %w", err)
	}
	return strings.TrimSpace(string(loop)), nil
}

// timed returns how long do takes.
func timed(do func() error) (time.Duration, error) {
	begin := time.Now()
	err := do()
	return time.Since(begin), err
}

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

// withLoop runs do while the image is mounted through a loop device made by hand.
func withLoop(ctx context.Context, image, mountpoint string, do func() error) (err error) {
	loop, err := attach(ctx, image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, command(ctx, "losetup", "-d", loop)) }()
	if err := command(ctx, "mount", loop, mountpoint); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, command(ctx, "umount", mountpoint)) }()
	return do()
}
