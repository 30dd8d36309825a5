package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// copies shows a snapshot and a clone of a volume that a pod is writing to.
func (s *stage) copies(ctx context.Context) error {
	s.act("A snapshot and a clone of a volume in use")
	const payload = 24 * mib
	v, err := s.pair.Create(ctx, programs.Claim{Name: "demo-source", Filesystem: "xfs", Size: 512 * mib})
	if err != nil {
		return err
	}
	file := filepath.Join(v.Target, "data")
	var snapshot *programs.Snapshot
	var restored, clone *programs.Volume
	var before, after string
	return s.play(ctx, scene{
		{"write", func() (string, error) {
			if err := errors.Join(v.Stage(ctx), v.Publish(ctx)); err != nil {
				return "", err
			}
			before, err = writeFile(file, payload)
			return "a pod has written " + human(payload), err
		}},
		{"snapshot", func() (string, error) {
			snapshot, err = v.Snapshot(ctx, "demo-snapshot")
			return "while the pod runs: all that it had synced, by reflink", err
		}},
		{"write", func() (string, error) {
			after, err = writeFile(file, payload)
			return "the pod overwrites its data", err
		}},
		{"restore", func() (string, error) {
			restored, err = s.copied(ctx, programs.Claim{Name: "demo-restored", Filesystem: "xfs", Size: gib, Source: snapshot.Source()})
			return "the snapshot, into a volume of 1 GiB, mounted beside its source", err
		}},
		{"verify", func() (string, error) {
			if _, err := grown(restored, gib); err != nil {
				return "", err
			}
			said, err := compare(filepath.Join(restored.Target, "data"), payload, before)
			return "as before the overwriting: " + said, err
		}},
		{"clone", func() (string, error) {
			clone, err = s.copied(ctx, programs.Claim{Name: "demo-clone", Filesystem: "xfs", Size: 512 * mib, Source: v.Source()})
			return "the volume itself, mounted beside it", err
		}},
		{"verify", func() (string, error) {
			said, err := compare(filepath.Join(clone.Target, "data"), payload, after)
			return "as it is now: " + said, err
		}},
		{"remove", func() (string, error) {
			var failures []error
			for _, volume := range []*programs.Volume{v, restored, clone} {
				_, err := s.remove(ctx, volume)
				failures = append(failures, err)
			}
			return "volumes and snapshot, in any order", errors.Join(append(failures, snapshot.Delete(ctx))...)
		}},
	})
}

// copied creates a volume from a source and mounts it.
func (s *stage) copied(ctx context.Context, claim programs.Claim) (*programs.Volume, error) {
	v, err := s.pair.Create(ctx, claim)
	if err != nil {
		return nil, err
	}
	return v, errors.Join(v.Attach(ctx), v.Stage(ctx), v.Publish(ctx))
}
