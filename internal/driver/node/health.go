package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

// Backend knows of a volume's health what only the source of its device knows, such as a pool.
type Backend interface {
	// Volume returns what is wrong with a volume; fault.NotFound if this node has no volume with this id.
	Volume(ctx context.Context, id string) ([]mount.Health, error)
	// Storage returns what is wrong with the storage of all volumes: Inaccessible or Degraded.
	Storage(ctx context.Context) ([]mount.Health, error)
	// Disks returns the numbers of the devices below the storage of a volume that a device's own stack in sysfs does not show; below
	// all storage if the id is empty. It touches none of them.
	Disks(table *mount.Table, id string) []uint64
}

// backendTime is how long a health call waits for the storage, whose commands stay in the kernel while its disk hangs. After that the
// kubelet asks again, and gets the stall.
const backendTime = 10 * time.Second

// reasonDeviceGone is the reason of the health of a volume whose disk is gone.
const reasonDeviceGone = "DeviceGone"

// HealthReasons are the reasons that Metrics.Health gets.
func HealthReasons() []string { return append(mount.HealthReasons(), reasonDeviceGone) }

// volumeHealth maps severities to the values of CSI.
var volumeHealth = map[mount.Severity]csi.VolumeHealthErrorType{
	mount.Degraded:     csi.VolumeHealthErrorType_DEGRADED,
	mount.Inaccessible: csi.VolumeHealthErrorType_INACCESSIBLE,
	mount.DataLoss:     csi.VolumeHealthErrorType_DATA_LOSS,
}

// NodeGetVolumeHealth returns what is wrong with a volume on this node: with its storage, its device, and its filesystem if
// that is mounted. The volume need not be staged.
func (s *Server) NodeGetVolumeHealth(ctx context.Context, req *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	id := req.GetVolumeId()
	if err := driver.CheckVolumeID("volume_id", id); err != nil {
		return nil, err
	}
	var paths []string
	for field, path := range map[string]string{
		"volume_publish_path": req.GetVolumePublishPath(), "staging_target_path": req.GetStagingTargetPath(),
	} {
		if path == "" {
			continue
		}
		if err := s.checkPath(field, path); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	found, err := s.healthOf(ctx, id, paths)
	if err != nil {
		return nil, fmt.Errorf("health of volume %s: %w", id, err)
	}
	answer := &csi.VolumeHealth{VolumeId: id}
	for _, t := range found {
		answer.HealthStatuses = append(answer.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{
			Status: volumeHealth[t.Severity], Reason: t.Reason, Message: t.Message,
		})
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: answer}, nil
}

// healthOf collects what is wrong with a volume, each reason once, the worst first.
func (s *Server) healthOf(ctx context.Context, id string, paths []string) (found []mount.Health, err error) {
	table, err := s.mounts.Table()
	if err != nil {
		return nil, err
	}
	if found = s.stalled(table, id); len(found) > 0 {
		return found, nil // anything else would touch the device that hangs
	}
	if s.backend != nil {
		err := askBackend(ctx, func(ctx context.Context) (err error) {
			found, err = s.backend.Volume(ctx, id)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	dev, path, err := s.stagedAt(ctx, table, id, paths...)
	switch {
	case errors.Is(err, fault.NotFound) && len(found) > 0: // that is what is wrong with it
		dev = nil
	case err != nil:
		return nil, err
	case dev == nil && s.backend == nil && len(paths) == 0:
		return nil, fmt.Errorf("its device is not on this machine: %w", fault.NotFound)
	}
	var number uint64
	if dev != nil {
		defer func() { err = errors.Join(err, dev.Close()) }()
		number = dev.Number()
	}
	if path != "" {
		if err := s.noteFound(table, id, path); err != nil {
			return nil, err
		}
	}
	if path != "" && !slices.Contains(paths, path) {
		paths = append(paths, path)
	}
	for _, path := range paths {
		at, err := s.at(table, path, number)
		if err != nil {
			return nil, err
		}
		more, err := s.healthAt(ctx, at)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	slices.SortStableFunc(found, func(a, b mount.Health) int {
		return cmp.Or(-cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Reason, b.Reason))
	})
	return slices.CompactFunc(found, func(a, b mount.Health) bool {
		return a.Severity == b.Severity && a.Reason == b.Reason
	}), nil
}

// stagedAt returns the volume's device, nil if it is not on this machine, and the oldest mount of its filesystem, if any: that
// is the staging path. The caller closes the device.
func (s *Server) stagedAt(ctx context.Context, table *mount.Table, volume string, paths ...string) (*device.Device, string, error) {
	dev, err := s.find(ctx, table, device.Spec{Volume: volume}, paths...)
	if err != nil || dev == nil {
		return nil, "", err
	}
	holders, err := table.Holders(dev.Number())
	for _, path := range holders {
		var at mount.State
		if at, err = table.At(path, dev.Number()); err != nil {
			break
		}
		if at.Use == mount.Ours && !at.Block {
			return dev, path, nil
		}
	}
	if err != nil {
		return nil, "", errors.Join(err, dev.Close())
	}
	return dev, "", nil
}

// healthAt returns what is wrong at one path where the volume is, or should be, staged or published.
func (s *Server) healthAt(ctx context.Context, at mount.State) ([]mount.Health, error) {
	switch {
	case at.Use != mount.Free && at.Mount.Stays() != nil:
		return nil, nil // unpublished or unstaged since the table was read
	case at.Use == mount.Dead:
		return []mount.Health{{Severity: mount.Inaccessible, Reason: reasonDeviceGone, Message: fmt.Sprintf(
			"%s is the mount of a disk that is gone from this machine; stop the pods that use it", at.Path)}}, nil
	case at.Use == mount.Foreign:
		return []mount.Health{{Severity: mount.Inaccessible, Reason: "PathInUse", Message: fmt.Sprintf(
			"%s (%s) is mounted at %s, which is not this volume", at.Mount.Source, at.Mount.FSType, at.Path)}}, nil
	case at.Use == mount.Ours && !at.Block:
		return s.mounts.Health(ctx, at.Mount)
	}
	return nil, nil
}

// NodeGetStorageHealth returns what is wrong with the storage of this node's volumes.
func (s *Server) NodeGetStorageHealth(ctx context.Context, _ *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	if s.backend == nil {
		return nil, fmt.Errorf("the health of a cloud does not show here: %w", fault.Unsupported)
	}
	answer := &csi.NodeGetStorageHealthResponse{}
	var found []mount.Health
	err := askBackend(ctx, func(ctx context.Context) (err error) {
		found, err = s.backend.Storage(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("health of the storage: %w", err)
	}
	for _, t := range found {
		status := csi.StorageHealthErrorType_STORAGE_DEGRADED
		if t.Severity == mount.Inaccessible {
			status = csi.StorageHealthErrorType_STORAGE_UNREACHABLE
		}
		answer.BackendHealth = append(answer.BackendHealth, &csi.NodeGetStorageHealthResponse_StorageBackendHealth{
			Status: status, Reason: t.Reason, Message: t.Message,
		})
	}
	return answer, nil
}

// askBackend ends a call of the backend after backendTime.
func askBackend(ctx context.Context, call func(context.Context) error) error {
	asked, cancel := context.WithTimeout(ctx, backendTime)
	defer cancel()
	err := call(asked)
	if err != nil && asked.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("the pool has not answered for %v: %w: %w", backendTime, fault.Unavailable, err)
	}
	return err
}

// checkAlive refuses and counts a mount whose filesystem no longer works.
func (s *Server) checkAlive(ctx context.Context, at mount.State) error {
	err := s.mounts.Responds(ctx, at.Mount)
	if errors.Is(err, fault.MountDead) {
		s.deadMount(at.Path)
	}
	return err
}
