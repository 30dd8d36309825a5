package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// payload is how much a pod writes on a volume with a filesystem, and on any of a cloud.
const payload = 48 * mib

// cloudFilesystem is the whole life of a cloud's volume with a filesystem: two machines, growth in use where
// the cloud can, what is made of it.
func (s *stage) cloudFilesystem(ctx context.Context) error {
	s.act("A volume with xfs, and what is made of it")
	v, err := s.provision(ctx, programs.Claim{Name: "demo-xfs", Filesystem: "xfs", Size: s.cloud.Size()})
	if err != nil {
		return err
	}
	file := filepath.Join(v.Target, "data")
	var sum string
	if err := s.play(ctx, scene{
		{"attach", func() (string, error) { return "to the first machine", v.Attach(ctx) }},
		{"attach", func() (string, error) { return "asked again: it is there", v.Attach(ctx) }},
		{"stage", func() (string, error) {
			return "proved to be this volume, proved blank, formatted, mounted", v.Stage(ctx)
		}},
		{"publish", func() (string, error) { return "bind-mounted into the pod", v.Publish(ctx) }},
		{"write", func() (string, error) {
			sum, err = writeFile(file, payload)
			return human(payload) + " of random bytes, synced", err
		}},
		{"stats", func() (string, error) { return stats(ctx, v) }},
	}); err != nil {
		return err
	}
	copies := s.cloneInUse
	if s.pair.Snapshots() {
		copies = s.snapshotInUse
	}
	if err := s.growInUse(ctx, v, 2*s.cloud.Size()); err != nil {
		return err
	}
	if sum, err = copies(ctx, v, sum); err != nil {
		return err
	}
	return s.move(ctx, v, sum)
}

// growInUse grows a cloud's volume that a pod has, as far as the cloud can.
func (s *stage) growInUse(ctx context.Context, v *programs.Volume, size int64) error {
	if s.cloud.GrowsInUse() {
		return s.growOnline(ctx, v, size)
	}
	return s.growHalf(ctx, v, size)
}

// growHalf grows what can grow while a pod has the volume, and expects to be told the rest.
func (s *stage) growHalf(ctx context.Context, v *programs.Volume, size int64) error {
	return s.step(ctx, "grow", func() (string, error) {
		_, err := v.Expand(ctx, size)
		if status.Code(err) != codes.FailedPrecondition {
			return "", fmt.Errorf("growing what this machine cannot see grow yet: %w", err)
		}
		return "to " + human(size) + " in the cloud; the node says: when it comes again", nil
	})
}

// snapshotInUse takes a snapshot while a pod writes, and makes volumes of it. It returns the checksum of what
// the pod has written in the end.
func (s *stage) snapshotInUse(ctx context.Context, v *programs.Volume, before string) (after string, err error) {
	var snapshot *programs.Snapshot
	if err := s.play(ctx, scene{
		{"snapshot", func() (string, error) {
			snapshot, err = v.Snapshot(ctx, "demo-snapshot")
			return "while the pod runs", err
		}},
		{"write", func() (string, error) {
			after, err = writeFile(filepath.Join(v.Target, "data"), payload)
			return "the pod overwrites its data", err
		}},
	}); err != nil {
		return "", err
	}
	return after, s.cloudCopies(ctx, snapshot, before)
}

// cloneInUse clones a volume that a pod has, larger.
func (s *stage) cloneInUse(ctx context.Context, v *programs.Volume, sum string) (string, error) {
	var clone *programs.Volume
	size := 3 * s.cloud.Size()
	return sum, s.play(ctx, scene{
		{"clone", func() (_ string, err error) {
			clone, err = s.copied(ctx, programs.Claim{Name: "demo-clone", Filesystem: "xfs", Size: size, Source: v.Source()})
			return "while the pod runs, into " + human(size) + ", mounted beside its source", err
		}},
		{"verify", func() (string, error) {
			if _, err := grown(clone, size); err != nil {
				return "", err
			}
			return compare(filepath.Join(clone.Target, "data"), payload, sum)
		}},
		{"remove", func() (string, error) { return s.remove(ctx, clone) }},
	})
}

// cloudCopies restores a snapshot larger and clones the result.
func (s *stage) cloudCopies(ctx context.Context, snapshot *programs.Snapshot, sum string) (err error) {
	var restored, clone *programs.Volume
	size := 3 * s.cloud.Size()
	return s.play(ctx, scene{
		{"restore", func() (string, error) {
			restored, err = s.copied(ctx, programs.Claim{Name: "demo-restored", Filesystem: "xfs", Size: size, Source: snapshot.Source()})
			return "the snapshot, into a volume of " + human(size) + ", mounted beside its source", err
		}},
		{"verify", func() (string, error) {
			if _, err := grown(restored, size); err != nil {
				return "", err
			}
			said, err := compare(filepath.Join(restored.Target, "data"), payload, sum)
			return "as before the overwriting: " + said, err
		}},
		{"clone", func() (string, error) {
			clone, err = s.copied(ctx, programs.Claim{Name: "demo-clone", Filesystem: "xfs", Size: size, Source: restored.Source()})
			return "the restored volume, mounted beside it", err
		}},
		{"verify", func() (string, error) { return compare(filepath.Join(clone.Target, "data"), payload, sum) }},
		{"remove", func() (string, error) {
			_, one := s.remove(ctx, restored)
			_, two := s.remove(ctx, clone)
			return "both volumes and the snapshot", errors.Join(one, two, snapshot.Delete(ctx))
		}},
	})
}

// move takes a volume to another machine, as when its pod is rescheduled. It has grown before.
func (s *stage) move(ctx context.Context, v *programs.Volume, sum string) error {
	other, err := s.pair.Beside(ctx)
	if err != nil {
		return err
	}
	there := v.On(other)
	return s.play(ctx, scene{
		{"attach", func() (string, error) {
			if err := there.Attach(ctx); err == nil {
				return "", errors.New("a volume was attached to two machines")
			}
			return "to a second machine, too early: refused, it is in use", nil
		}},
		{"leave", func() (string, error) {
			return "unpublished, unstaged, detached", errors.Join(v.Unpublish(ctx), v.Unstage(ctx), v.Detach(ctx))
		}},
		{"arrive", func() (string, error) {
			return "attached to the second machine, staged, published",
				errors.Join(there.Attach(ctx), there.Stage(ctx), there.Publish(ctx))
		}},
		{"verify", func() (string, error) {
			if _, err := grown(there, 2*s.cloud.Size()); err != nil {
				return "", err
			}
			said, err := compare(filepath.Join(there.Target, "data"), payload, sum)
			return human(2*s.cloud.Size()) + " there, " + said, err
		}},
		{"remove", func() (string, error) { return s.remove(ctx, there) }},
	})
}

// cutAttach kills the controller while the cloud works on what it has asked for.
func (s *stage) cutAttach(ctx context.Context) error {
	s.act("Both programs killed while the cloud attaches a volume")
	v, err := s.provision(ctx, programs.Claim{Name: "demo-cut", Filesystem: "ext4", Size: s.cloud.Size()})
	if err != nil {
		return err
	}
	return s.play(ctx, scene{
		{"attach", func() (string, error) {
			return "asked for; kill -9 as soon as the cloud has the request", s.cut(ctx, v)
		}},
		{"start", func() (string, error) {
			return "both ready again", errors.Join(s.pair.Controller.Start(ctx), s.pair.Node.Start(ctx))
		}},
		{"attach", func() (string, error) {
			return "asked again: waits for the attach under way and finds it done", v.Attach(ctx)
		}},
		{"stage", func() (string, error) { return "formatted, mounted", v.Stage(ctx) }},
		{"remove", func() (string, error) { return s.remove(ctx, v) }},
	})
}

// cut asks for an attach and kills both programs when the write has reached the cloud.
func (s *stage) cut(ctx context.Context, v *programs.Volume) error {
	_, before := s.calls()
	asked := make(chan error, 1)
	go func() { asked <- v.Attach(ctx) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-asked:
			return errors.Join(errors.New("the attach ended before anybody was killed"), err)
		case <-tick.C:
		}
		if _, writes := s.calls(); writes > before {
			s.pair.Controller.Kill()
			s.pair.Node.Kill()
			if err := <-asked; err == nil {
				return errors.New("the attach ended before anybody was killed")
			}
			return nil
		}
	}
}
