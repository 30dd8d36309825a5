package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

// use is what a stage or publish request asks for, checked and decoded.
type use struct {
	volume     string
	spec       device.Spec
	context    driver.VolumeContext
	block      bool
	filesystem mounter.Filesystem // without block
	flags      []string
	readOnly   bool
	oneTarget  bool          // SINGLE_NODE_SINGLE_WRITER: one target path at a time
	key        driver.Secret // of an encrypted volume, only when it is staged
}

// useRequest is what stage and publish requests have in common.
type useRequest interface {
	GetVolumeId() string
	GetVolumeCapability() *csi.VolumeCapability
	GetVolumeContext() map[string]string
	GetPublishContext() map[string]string
}

// decodeUse checks everything of a request but its paths. It touches nothing.
func (s *Server) decodeUse(req useRequest) (use, error) {
	id, capability := req.GetVolumeId(), req.GetVolumeCapability()
	if err := driver.CheckVolumeID("volume_id", id); err != nil {
		return use{}, err
	}
	if err := driver.CheckCapability("volume_capability", capability); err != nil {
		return use{}, err
	}
	volume, err := s.names.DecodeVolumeContext(req.GetVolumeContext())
	if err != nil {
		return use{}, err
	}
	if volume.Refused != "" {
		return use{}, fmt.Errorf("volume %s: volume_context: %s: %w", id, volume.Refused, fault.Precondition)
	}
	publish, err := s.names.DecodePublishContext(id, req.GetPublishContext())
	if err != nil {
		return use{}, err
	}
	volume = volume.With(publish)
	u := use{
		volume:  id,
		context: volume,
		spec:    device.Spec{Volume: id, Name: volume.DeviceName, Serial: volume.Serial, Size: volume.Size, Encrypted: volume.LUKS},
		block:   capability.GetBlock() != nil,
	}
	switch capability.GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		u.readOnly = true
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		u.oneTarget = true
	}
	if u.block {
		return u, nil
	}
	if u.filesystem, err = mounter.ParseFilesystem(capability.GetMount().GetFsType()); err != nil {
		return use{}, inField("volume_capability: mount: fs_type", err)
	}
	flags, readOnly, err := mount.ParseMountOptions(u.filesystem, capability.GetMount().GetMountFlags())
	if err != nil {
		return use{}, inField("volume_capability: mount: mount_flags", err)
	}
	u.flags, u.readOnly = flags, u.readOnly || readOnly
	return u, nil
}

// checkVolumePath accepts a path that a staged or published volume can have. At any other path there is
// no volume, and for that the specification has a code of its own.
func (s *Server) checkVolumePath(path string) error {
	err := s.checkPath("volume_path", path)
	if err != nil && path != "" {
		return fmt.Errorf("no volume can be there: %w: %w", fault.NotFound, err)
	}
	return err
}

// checkTargetPath accepts a target path in a folder that exists.
func (s *Server) checkTargetPath(field, path string) error {
	if err := s.checkPath(field, path); err != nil {
		return err
	}
	return checkFolder(field, filepath.Dir(path))
}

// checkStagingFolder accepts a staging path that is a folder.
func (s *Server) checkStagingFolder(field, path string) error {
	if err := s.checkPath(field, path); err != nil {
		return err
	}
	return checkFolder(field, path)
}

// checkFolder accepts a folder that exists. CSI has the orchestrator make it, and making it here would
// hide that kubelet's folder is not the one that this program sees.
func checkFolder(field, path string) error {
	info, err := os.Lstat(path)
	switch {
	case os.IsNotExist(err):
		return fmt.Errorf("%s: folder %s does not exist; is kubelet's folder mounted into this container under the same path?: %w",
			field, path, fault.InvalidArgument)
	case errors.Is(err, syscall.EIO):
		return nil // a dead mount, which is recognised as that when it is looked at
	case err != nil:
		return fmt.Errorf("%s: %w: %w", field, fault.Unavailable, err)
	case !info.IsDir():
		return fmt.Errorf("%s: %s is not a folder: %w", field, path, fault.InvalidArgument)
	}
	return nil
}
