package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// filesystem is the whole life of a volume with a filesystem: made, written, grown, taken away and
// brought back, deleted.
func (s *stage) filesystem(ctx context.Context, fs string) error {
	s.act(fmt.Sprintf("A volume with %s", fs))
	before, after := 512*mib, gib
	v, err := s.provision(ctx, programs.Claim{Name: "demo-" + fs, Filesystem: fs, Size: before})
	if err != nil {
		return err
	}
	file := filepath.Join(v.Target, "data")
	var sum string
	if err := s.play(ctx, scene{
		{"stage", func() (string, error) {
			return "proved blank, formatted " + fs + ", mounted for the node", v.Stage(ctx)
		}},
		{"publish", func() (string, error) { return "bind-mounted into the pod", v.Publish(ctx) }},
		{"write", func() (string, error) {
			var err error
			sum, err = writeFile(file, payload)
			return human(payload) + " of random bytes, synced", err
		}},
		{"stats", func() (string, error) { return stats(ctx, v) }},
	}); err != nil {
		return err
	}
	if fs != "ext4" || canGrowMountedExt4() {
		if err := s.growOnline(ctx, v, after); err != nil {
			return err
		}
	} else {
		after = before
		s.note("the growth of ext4 is left out: it needs CAP_SYS_RESOURCE, which this machine's root lacks")
	}
	return s.play(ctx, scene{
		{"verify", func() (string, error) { return compare(file, payload, sum) }},
		{"unpublish", func() (string, error) { return "taken from the pod", v.Unpublish(ctx) }},
		{"unstage", func() (string, error) { return "unmounted, loop device gone", v.Unstage(ctx) }},
		{"stage", func() (string, error) { return "checked and mounted again, as after a reboot", v.Stage(ctx) }},
		{"publish", func() (string, error) { return "bind-mounted into the next pod", v.Publish(ctx) }},
		{"verify", func() (string, error) {
			if _, err := grown(v, after); err != nil {
				return "", err
			}
			return compare(file, payload, sum)
		}},
		{"remove", func() (string, error) { return s.remove(ctx, v) }},
	})
}

// provision creates a volume, twice, since every caller of CSI repeats its calls.
func (s *stage) provision(ctx context.Context, claim programs.Claim) (v *programs.Volume, err error) {
	err = s.play(ctx, scene{
		{"create", func() (string, error) {
			v, err = s.pair.Create(ctx, claim)
			if err != nil || s.cloud == nil {
				return human(claim.Size) + " reserved in full", err
			}
			return human(v.Size) + " in the account", nil
		}},
		{"create", func() (string, error) {
			again, err := s.pair.Create(ctx, claim)
			if err == nil && again.ID != v.ID {
				err = fmt.Errorf("the same request made a second volume: %s and %s", v.ID, again.ID)
			}
			return "asked again: the same volume", err
		}},
	})
	return v, err
}

func stats(ctx context.Context, v *programs.Volume) (string, error) {
	usage, err := v.Stats(ctx)
	if err != nil {
		return "", err
	}
	bytes, inodes := usage[csi.VolumeUsage_BYTES], usage[csi.VolumeUsage_INODES]
	said := fmt.Sprintf("%s used of %s", human(bytes.GetUsed()), human(bytes.GetTotal()))
	if inodes.GetTotal() > 0 {
		said += fmt.Sprintf(", %d of %d inodes", inodes.GetUsed(), inodes.GetTotal())
	}
	return said, nil
}

func (s *stage) growOnline(ctx context.Context, v *programs.Volume, size int64) error {
	return s.step(ctx, "grow", func() (string, error) {
		got, err := v.Expand(ctx, size)
		switch {
		case err != nil:
			return "", err
		case v.Filesystem != "":
			return grown(v, size)
		case got != size:
			return "", fmt.Errorf("the node reports %d bytes, want %d", got, size)
		}
		return "while in use, to " + human(size), nil
	})
}

// grown checks that the filesystem fills the new size, less what every filesystem keeps for itself.
func grown(v *programs.Volume, size int64) (string, error) {
	seen, err := df(v.Target)
	if err != nil {
		return "", err
	}
	if seen < size*85/100 {
		return "", fmt.Errorf("the filesystem has %s, want nearly %s", human(seen), human(size))
	}
	return fmt.Sprintf("while mounted, from %s to %s: df sees %s", human(v.Size), human(size), human(seen)), nil
}

func (s *stage) remove(ctx context.Context, v *programs.Volume) (string, error) {
	said := "unpublished, unstaged, deleted"
	if s.cloud != nil {
		said = "unpublished, unstaged, detached, deleted"
	}
	return said, errors.Join(v.Unpublish(ctx), v.Unstage(ctx), v.Detach(ctx), v.Delete(ctx))
}

// block is the life of a raw block volume. On `local` every byte of it is written.
func (s *stage) block(ctx context.Context) error {
	s.act("A raw block volume")
	size, written := 64*mib, 64*mib
	device, grow := "a loop device with a hard size", s.growOnline
	if s.cloud != nil {
		size, written = s.cloud.Size(), payload
		device, grow = "the device", s.growInUse
	}
	v, err := s.provision(ctx, programs.Claim{Name: "demo-block", Size: size})
	if err != nil {
		return err
	}
	var sum string
	steps := scene{
		{"stage", func() (string, error) { return device + ", nothing formatted", v.Stage(ctx) }},
		{"publish", func() (string, error) { return "the pod sees a block device", v.Publish(ctx) }},
		{"write", func() (string, error) {
			sum, err = fillDevice(v.Target, written)
			return human(written) + " of random bytes, synced", err
		}},
	}
	if s.cloud != nil {
		steps = append(scene{{"attach", func() (string, error) { return "to the machine", v.Attach(ctx) }}}, steps...)
	}
	if err := s.play(ctx, steps); err != nil {
		return err
	}
	if err := grow(ctx, v, 2*size); err != nil {
		return err
	}
	return s.play(ctx, scene{
		{"verify", func() (string, error) { return compare(v.Target, written, sum) }},
		{"remove", func() (string, error) { return s.remove(ctx, v) }},
	})
}

// fillDevice writes a device that exists; it must not create a file in its place.
func fillDevice(path string, size int64) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Mode()&os.ModeDevice == 0 {
		return "", fmt.Errorf("%s is no device", path)
	}
	return writeFile(path, size)
}

// hardLimit shows that a full volume harms nobody but itself.
func (s *stage) hardLimit(ctx context.Context) error {
	s.act("Two neighbours, one of them full")
	var volumes [2]*programs.Volume
	for i := range volumes {
		v, err := s.pair.Create(ctx, programs.Claim{Name: fmt.Sprintf("demo-neighbour-%d", i), Filesystem: "ext4", Size: 64 * mib})
		if err != nil {
			return err
		}
		if err := errors.Join(v.Stage(ctx), v.Publish(ctx)); err != nil {
			return err
		}
		volumes[i] = v
	}
	greedy, modest := volumes[0], volumes[1]
	return s.play(ctx, scene{
		{"write", func() (string, error) {
			var wg sync.WaitGroup
			var tooMuch, some error
			wg.Go(func() { _, tooMuch = writeFile(filepath.Join(greedy.Target, "data"), 100*mib) })
			wg.Go(func() { _, some = writeFile(filepath.Join(modest.Target, "data"), 32*mib) })
			wg.Wait()
			if !errors.Is(tooMuch, unix.ENOSPC) {
				return "", fmt.Errorf("100 MiB into a 64 MiB volume: want no space left, got %w", tooMuch)
			}
			return "100 MiB into 64 MiB: no space left; the neighbour writes on", some
		}},
		{"remove", func() (string, error) {
			_, one := s.remove(ctx, greedy)
			_, two := s.remove(ctx, modest)
			return "both unpublished, unstaged, deleted", errors.Join(one, two)
		}},
	})
}

// crash shows that nothing that matters lives in the programs' memory.
func (s *stage) crash(ctx context.Context) error {
	s.act("Both programs killed in the middle")
	v, err := s.pair.Create(ctx, programs.Claim{Name: "demo-crash", Filesystem: "ext4", Size: 64 * mib})
	if err != nil {
		return err
	}
	file := filepath.Join(v.Target, "data")
	var sum string
	return s.play(ctx, scene{
		{"stage", func() (string, error) {
			if err := errors.Join(v.Attach(ctx), v.Stage(ctx), v.Publish(ctx)); err != nil {
				return "", err
			}
			var err error
			sum, err = writeFile(file, 16*mib)
			return "a pod runs and has written 16 MiB", err
		}},
		{"kill -9", func() (string, error) {
			s.pair.Controller.Kill()
			s.pair.Node.Kill()
			return "controller and node; the pod does not notice", nil
		}},
		{"start", func() (string, error) {
			return "both ready again", errors.Join(s.pair.Controller.Start(ctx), s.pair.Node.Start(ctx))
		}},
		{"publish", func() (string, error) { return "asked again: everything is in place", v.Publish(ctx) }},
		{"delete", func() (string, error) {
			if err := v.Delete(ctx); err == nil {
				return "", errors.New("a volume in use was deleted")
			}
			return "refused: the volume is in use", nil
		}},
		{"verify", func() (string, error) { return compare(file, 16*mib, sum) }},
		{"remove", func() (string, error) { return s.remove(ctx, v) }},
	})
}
