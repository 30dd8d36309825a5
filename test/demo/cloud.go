package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/programs"
)

// payload is how much a pod writes on a cloud's volume.
const payload = 48 * mib

// cloudFilesystem is the whole life of a cloud's volume with a filesystem: two machines, growth in use, a
// snapshot, a larger volume from it, a clone.
func (s *stage) cloudFilesystem(ctx context.Context) error {
	s.act("A volume with xfs, and what is made of it")
	v, err := s.provision(ctx, programs.Claim{Name: "demo-xfs", Filesystem: "xfs", Size: gib})
	if err != nil {
		return err
	}
	file := filepath.Join(v.Target, "data")
	var before, after string
	var snapshot *programs.Snapshot
	if err := s.play(ctx, scene{
		{"attach", func() (string, error) { return "to the first machine", v.Attach(ctx) }},
		{"attach", func() (string, error) { return "asked again: it is there", v.Attach(ctx) }},
		{"stage", func() (string, error) {
			return "proved to be this volume, proved blank, formatted, mounted", v.Stage(ctx)
		}},
		{"publish", func() (string, error) { return "bind-mounted into the pod", v.Publish(ctx) }},
		{"write", func() (string, error) {
			before, err = writeFile(file, payload)
			return human(payload) + " of random bytes, synced", err
		}},
	}); err != nil {
		return err
	}
	if err := s.growOnline(ctx, v, 2*gib); err != nil {
		return err
	}
	if err := s.play(ctx, scene{
		{"stats", func() (string, error) { return stats(ctx, v) }},
		{"snapshot", func() (string, error) {
			snapshot, err = v.Snapshot(ctx, "demo-snapshot")
			return "while the pod runs", err
		}},
		{"write", func() (string, error) {
			after, err = writeFile(file, payload)
			return "the pod overwrites its data", err
		}},
	}); err != nil {
		return err
	}
	if err := s.cloudCopies(ctx, snapshot, before); err != nil {
		return err
	}
	return s.move(ctx, v, after)
}

// cloudCopies restores a snapshot larger and clones the result.
func (s *stage) cloudCopies(ctx context.Context, snapshot *programs.Snapshot, sum string) (err error) {
	var restored, clone *programs.Volume
	return s.play(ctx, scene{
		{"restore", func() (string, error) {
			restored, err = s.copied(ctx, programs.Claim{Name: "demo-restored", Filesystem: "xfs", Size: 3 * gib, Source: snapshot.Source()})
			return "the snapshot, into a volume of 3 GiB, mounted beside its source", err
		}},
		{"verify", func() (string, error) {
			if _, err := grown(restored, 3*gib); err != nil {
				return "", err
			}
			said, err := compare(filepath.Join(restored.Target, "data"), payload, sum)
			return "as before the overwriting: " + said, err
		}},
		{"clone", func() (string, error) {
			clone, err = s.copied(ctx, programs.Claim{Name: "demo-clone", Filesystem: "xfs", Size: 3 * gib, Source: restored.Source()})
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

// move takes a volume to another machine, as when its pod is rescheduled.
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
		{"verify", func() (string, error) { return compare(filepath.Join(there.Target, "data"), payload, sum) }},
		{"remove", func() (string, error) { return s.remove(ctx, there) }},
	})
}

// cloudBlock is the life of a cloud's volume without a filesystem.
func (s *stage) cloudBlock(ctx context.Context) error {
	s.act("A raw block volume")
	v, err := s.provision(ctx, programs.Claim{Name: "demo-block", Size: gib})
	if err != nil {
		return err
	}
	var sum string
	return s.play(ctx, scene{
		{"attach", func() (string, error) { return "to the machine", v.Attach(ctx) }},
		{"stage", func() (string, error) { return "the device, nothing formatted", v.Stage(ctx) }},
		{"publish", func() (string, error) { return "the pod sees a block device", v.Publish(ctx) }},
		{"write", func() (string, error) {
			sum, err = fillDevice(v.Target, payload)
			return human(payload) + " of random bytes, synced", err
		}},
		{"grow", func() (string, error) {
			size, err := v.Expand(ctx, 2*gib)
			if err == nil && size != 2*gib {
				err = errors.New("it is " + human(size) + " now")
			}
			return "while in use, to 2 GiB", err
		}},
		{"verify", func() (string, error) { return compare(v.Target, payload, sum) }},
		{"remove", func() (string, error) { return s.remove(ctx, v) }},
	})
}

// cutAttach kills the controller while the cloud works on what it has asked for.
func (s *stage) cutAttach(ctx context.Context) error {
	s.act("Both programs killed while the cloud attaches a volume")
	v, err := s.provision(ctx, programs.Claim{Name: "demo-cut", Filesystem: "ext4", Size: gib})
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
