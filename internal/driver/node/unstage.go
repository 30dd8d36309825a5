package node

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

// NodeUnstageVolume undoes NodeStageVolume. It answers OK only when nothing on this machine uses the volume's device, because
// the orchestrator then detaches it.
func (s *Server) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	id, staging := req.GetVolumeId(), req.GetStagingTargetPath()
	if err := driver.CheckVolumeID("volume_id", id); err != nil {
		return nil, err
	}
	if err := s.checkPath("staging_target_path", staging); err != nil {
		return nil, err
	}
	release, err := s.locks.Acquire(driver.OfVolume(id), driver.OfPath(staging))
	if err != nil {
		return nil, err
	}
	// Writing back dirty pages may take longer than the call; the volume stays locked until it ends.
	err = s.runDetached(ctx, release, func(work context.Context) error {
		err := s.unstage(work, id, staging)
		if err == nil {
			s.noteUnstaged(id) // before the lock is released, because the next stage notes the volume again
		}
		return err
	})
	if err != nil {
		err = explainUnstage(err)
		return nil, fmt.Errorf("unstage volume %s from %s: %w", id, staging, err)
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// explainUnstage adds the reason, that something on this machine uses the volume, to a refusal without one.
func explainUnstage(err error) error {
	kind, reason := fault.Of(err), fault.ReasonOf(err)
	if (kind == fault.Busy || kind == fault.Precondition) && (reason == fault.NoReason || reason == fault.DeviceInUse) {
		return fault.UnstageInUse.Explain(err)
	}
	return err
}

func (s *Server) unstage(ctx context.Context, id, staging string) error {
	node := blockFile(staging)
	table, err := s.mounts.Table()
	if err != nil {
		return err
	}
	spec, number, err := s.identify(ctx, table, id, staging, node)
	if err != nil {
		return err
	}
	mappings, err := s.mappings(table, spec, number, staging, node)
	if err != nil {
		return err
	}
	if err := s.checkUnpublished(table, number, mappings, staging, node); err != nil {
		return err
	}
	if number != 0 {
		// After the unmount nothing else leads a repeated call to the disk and its mapping.
		spec.Encrypted = spec.Encrypted || len(mappings) > 0
		if err := s.records.Remember(spec); err != nil {
			return err
		}
	}
	// The filesystem first: in it, a file with the name of the block file would be a user's.
	for _, path := range []string{staging, node} {
		if table, err = s.unmountOurs(ctx, table, id, path); err != nil {
			return err
		}
	}
	if err := s.mounts.RemoveTarget(node); err != nil {
		return err
	}
	for _, c := range mappings {
		if err := s.crypt.Close(ctx, c.Name); err != nil {
			return err
		}
	}
	// This proves that nothing holds the device any more.
	if err := s.devices.Release(ctx, spec); err != nil {
		return err
	}
	// Last: until here a repeat still needs it.
	return s.records.Forget(id)
}

// checkUnpublished refuses a volume whose disk or mapping is in use elsewhere than at its staging paths. The disk of a mapping
// may be gone. A bind of a mapping's device node does not keep the mapping open, and the kernel would give its number to the
// next one.
func (s *Server) checkUnpublished(table *mount.Table, number uint64, mappings []host.Crypt, staging ...string) error {
	var devices []uint64
	mine := staging
	if number != 0 {
		devices = append(devices, number)
	}
	for _, c := range mappings {
		devices = append(devices, c.Number)
		mine = append(mine, s.sysfs.HolderPath(number, c)) // not in use: an earlier call unmounted it
	}
	for _, device := range devices {
		used, err := table.Holders(device, mine...)
		if err != nil {
			return err
		}
		if len(used) > 0 {
			return fmt.Errorf("the volume is in use at %s; unpublish it there first: %w", mount.ExplainHolders(used), fault.Precondition)
		}
	}
	return nil
}
