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

// use is a stage or publish request, checked and decoded.
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

// useRequest has the fields that stage and publish requests share.
type useRequest interface {
	GetVolumeId() string
	GetVolumeCapability() *csi.VolumeCapability
	GetVolumeContext() map[string]string
	GetPublishContext() map[string]string
}

// place is where the volume is staged in a staging folder: the folder itself, or the block file.
func (u use) place(staging string) string {
	if u.block {
		return blockFile(staging)
	}
	return staging
}

// decodeUse checks a request except for its paths. It reads nothing of the machine.
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
	if capability.GetBlock() != nil && volume.VendorLUKS {
		volume.LUKS = false // the vendor's driver encrypts filesystems only, whatever the class of a raw block volume says
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

// checkVolumePath refuses a path at which no volume can be staged or published with the code that CSI has for that.
func (s *Server) checkVolumePath(path string) error {
	err := s.checkPath("volume_path", path)
	if err != nil && path != "" {
		return fmt.Errorf("no volume can be there: %w: %w", fault.NotFound, err)
	}
	return err
}

// checkTargetPath refuses a target path whose folder does not exist.
func (s *Server) checkTargetPath(field, path string) error {
	if err := s.checkPath(field, path); err != nil {
		return err
	}
	return checkFolder(field, filepath.Dir(path))
}

// checkStagingFolder refuses a staging path that is not a folder.
func (s *Server) checkStagingFolder(field, path string) error {
	if err := s.checkPath(field, path); err != nil {
		return err
	}
	return checkFolder(field, path)
}

// checkFolder refuses a folder that does not exist. The orchestrator makes it, says CSI; making it here would hide that this
// program sees another folder than kubelet.
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
