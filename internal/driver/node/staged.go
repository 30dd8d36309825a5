package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

// sampleEvery is the interval of Watch. A stall is noticed within host.StallTime and two intervals: the first reading with requests in
// flight may be one interval late, and so may the reading after host.StallTime.
const sampleEvery = 10 * time.Second

// Staged is a volume that is staged on this machine.
type Staged struct {
	Volume string
	// Device is the number of the device that the pods use: the volume's disk, or the mapping of an encrypted volume.
	Device uint64
	// Filesystem is empty for a raw block volume.
	Filesystem mounter.Filesystem
	Encrypted  bool
	// Stats are the counters of the device, as Server.Staged has read them.
	Stats host.BlockStats

	place string // the path of a mount of the volume
	// stalled: Metrics has it as stalled.
	stalled bool
}

// stagedVolumes has the volumes that are staged on this machine. A volume comes with its stage, from its record at the start, or with
// a call that finds it mounted, and goes with its unstage or when its mount does. What is known of it is what the mount table has.
type stagedVolumes struct {
	mu     sync.Mutex
	staged map[string]*Staged
}

// Restore reads the records of the volumes that were staged before the program started. It opens no device.
func (s *Server) Restore() error {
	places, err := s.records.Places()
	if err != nil {
		return err
	}
	table, err := s.mounts.Table()
	if err != nil {
		return err
	}
	var errs []error
	for volume, place := range places {
		found, err := s.noteStaged(table, volume, place)
		if _, identified := s.records.Recall(volume); err == nil && !found && !identified {
			err = s.records.Forget(volume) // after a reboot no call may unstage it
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Watch reads the counters of the staged volumes' devices at intervals until ctx ends, and sets in the metrics which volumes have
// one that is stalled. It touches no device.
func (s *Server) Watch(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		s.sample()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Staged returns the volumes that are staged here, sorted by id, with the counters of their devices. It reads one file of sysfs for each,
// and leaves out a volume whose device the kernel does not have. It touches no device.
func (s *Server) Staged() []Staged {
	s.volumes.mu.Lock()
	known := make([]Staged, 0, len(s.volumes.staged))
	for _, v := range s.volumes.staged {
		known = append(known, *v)
	}
	s.volumes.mu.Unlock()
	var all []Staged
	for _, v := range known {
		stats, ok, err := s.sysfs.BlockStats(v.Device)
		if err == nil && ok {
			v.Stats = stats
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b Staged) int { return strings.Compare(a.Volume, b.Volume) })
	return all
}

// sample is one round of Watch.
func (s *Server) sample() {
	table, err := s.mounts.Table()
	if err != nil {
		return // the next round reads it again
	}
	s.volumes.mu.Lock()
	defer s.volumes.mu.Unlock()
	devices := map[string][]uint64{}
	var all []uint64
	if s.backend != nil {
		all = s.backend.Disks(table, "")
	}
	for volume, v := range s.volumes.staged {
		now, found, err := s.stagedIn(table, volume, v.place)
		switch {
		case err != nil: // what is known of it stays
		case !found:
			s.noteStalled(v, false)
			delete(s.volumes.staged, volume)
			continue
		default:
			v.Device, v.Filesystem, v.Encrypted = now.Device, now.Filesystem, now.Encrypted
		}
		devices[volume] = s.devicesOf(table, *v)
		all = append(all, devices[volume]...)
	}
	s.mounts.Stalls.Watch(all)
	for volume, v := range s.volumes.staged {
		s.noteStalled(v, len(s.mounts.Stalled(devices[volume])) > 0)
	}
}

// noteStalled sets in the metrics whether a volume is stalled. The caller holds the lock of volumes, so an unstage comes before or after.
func (s *Server) noteStalled(v *Staged, stalled bool) {
	switch {
	case stalled: // at each round, because a measurement that began before the stall may have ended since
		s.metrics.Health(v.Volume, []string{mount.ReasonStalled})
	case v.stalled:
		s.metrics.Health(v.Volume, nil)
	}
	v.stalled = stalled
}

// stalled returns the health of a volume with a device that is stalled. Nothing may touch the volume then.
func (s *Server) stalled(table *mount.Table, volume string) []mount.Health {
	s.volumes.mu.Lock()
	var devices []uint64
	v := s.volumes.staged[volume]
	switch {
	case v != nil:
		devices = s.devicesOf(table, *v)
	case s.backend != nil:
		devices = s.backend.Disks(table, volume)
	}
	s.volumes.mu.Unlock()
	return s.mounts.Stalled(devices)
}

// devicesOf returns the device of a volume and all below it, the lowest first.
func (s *Server) devicesOf(table *mount.Table, v Staged) []uint64 {
	var devices []uint64
	if s.backend != nil {
		devices = s.backend.Disks(table, v.Volume)
	}
	return append(append(devices, s.sysfs.Below(v.Device)...), v.Device)
}

// noteStaged adds a volume that is mounted or bound at a path, and reports whether it is.
func (s *Server) noteStaged(table *mount.Table, volume, place string) (bool, error) {
	v, found, err := s.stagedIn(table, volume, place)
	if err != nil || !found {
		return false, err
	}
	s.volumes.mu.Lock()
	defer s.volumes.mu.Unlock()
	if known := s.volumes.staged[volume]; known != nil {
		v.stalled = known.stalled
	}
	s.volumes.staged[volume] = &v
	return true, nil
}

// noteFound is noteStaged for a call that has found the volume, which does not change a known place: the stage of a vendor's driver has
// left no record of it.
func (s *Server) noteFound(table *mount.Table, volume, path string) error {
	s.volumes.mu.Lock()
	known := s.volumes.staged[volume] != nil
	s.volumes.mu.Unlock()
	if known {
		return nil
	}
	_, err := s.noteStaged(table, volume, path)
	return err
}

// noteUnstaged removes a volume that was unstaged, and its health from the metrics.
func (s *Server) noteUnstaged(volume string) {
	s.volumes.mu.Lock()
	defer s.volumes.mu.Unlock()
	delete(s.volumes.staged, volume)
	s.metrics.Health(volume, nil)
}

// stagedIn returns a volume as it is mounted or bound at a path; false if nothing is, or if its disk is gone.
func (s *Server) stagedIn(table *mount.Table, volume, place string) (Staged, bool, error) {
	at, err := table.At(place, 0)
	if err != nil || at.Use == mount.Free || at.Use == mount.Dead {
		return Staged{}, false, err
	}
	v := Staged{Volume: volume, Device: at.Mount.Device, place: place}
	if !at.Block {
		if v.Filesystem, err = mounter.ParseFilesystem(at.Mount.FSType); err != nil {
			return Staged{}, false, nil //nolint:nilerr // no volume has such a filesystem
		}
	}
	_, v.Encrypted, err = s.sysfs.Crypt(v.Device)
	return v, err == nil, err
}
