package middleware

import (
	"context"
	"fmt"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Serialize lets one change at a time through for each volume, snapshot and request name. A second
// one is answered fault.Busy at once instead of waiting: the caller repeats it anyway, and a waiting
// call would outlive its own deadline. Calls that only read never lock.
//
// The locks live in this process and carry no correctness: another controller has its own.
type Serialize struct {
	cloud.Cloud

	mu   sync.Mutex
	held map[key]struct{}
}

// A key is what a change holds: an object by its id, or a name that has no id yet.
type key struct{ of, name string }

// NewSerialize wraps c.
func NewSerialize(c cloud.Cloud) *Serialize {
	return &Serialize{Cloud: c, held: map[key]struct{}{}}
}

// lock takes the key and returns what gives it back.
func (s *Serialize) lock(k key) (unlock func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.held[k]; taken {
		return nil, fmt.Errorf("%s %q: %w", k.of, k.name, fault.Busy)
	}
	s.held[k] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.held, k)
	}, nil
}

func volumeKey(id cloud.VolumeID) key { return key{"volume", string(id)} }

// CreateVolume holds the request's name.
func (s *Serialize) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	unlock, err := s.lock(key{"creation of volume", req.Name})
	if err != nil {
		return cloud.Volume{}, err
	}
	defer unlock()
	return s.Cloud.CreateVolume(ctx, req)
}

// DeleteVolume holds the volume.
func (s *Serialize) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	unlock, err := s.lock(volumeKey(id))
	if err != nil {
		return err
	}
	defer unlock()
	return s.Cloud.DeleteVolume(ctx, id)
}

// ExpandVolume holds the volume.
func (s *Serialize) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	unlock, err := s.lock(volumeKey(id))
	if err != nil {
		return cloud.Expansion{}, err
	}
	defer unlock()
	return s.Cloud.ExpandVolume(ctx, id, size)
}

// ModifyVolume holds the volume.
func (s *Serialize) ModifyVolume(ctx context.Context, id cloud.VolumeID, tags []cloud.Tag) error {
	unlock, err := s.lock(volumeKey(id))
	if err != nil {
		return err
	}
	defer unlock()
	return s.Cloud.ModifyVolume(ctx, id, tags)
}

// Attach holds the volume, whatever the node: an attach and a detach of one volume never overlap.
func (s *Serialize) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	unlock, err := s.lock(volumeKey(id))
	if err != nil {
		return cloud.Device{}, err
	}
	defer unlock()
	return s.Cloud.Attach(ctx, id, node)
}

// Detach holds the volume.
func (s *Serialize) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	unlock, err := s.lock(volumeKey(id))
	if err != nil {
		return err
	}
	defer unlock()
	return s.Cloud.Detach(ctx, id, node)
}

// CreateSnapshot holds the request's name. It does not hold the volume, which it does not change.
func (s *Serialize) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	unlock, err := s.lock(key{"creation of snapshot", req.Name})
	if err != nil {
		return cloud.Snapshot{}, err
	}
	defer unlock()
	return s.Cloud.CreateSnapshot(ctx, req)
}

// DeleteSnapshot holds the snapshot.
func (s *Serialize) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	unlock, err := s.lock(key{"snapshot", string(id)})
	if err != nil {
		return err
	}
	defer unlock()
	return s.Cloud.DeleteSnapshot(ctx, id)
}
