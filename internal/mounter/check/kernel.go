package check

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// unusable are the errors of a mount that are not about the filesystem.
var unusable = map[error]string{
	unix.EPERM:  "to mount takes root with the capability SYS_ADMIN",
	unix.EACCES: "the device cannot be opened as the mount needs it",
	unix.ENODEV: "the kernel does not have this filesystem",
	unix.EBUSY:  "the device is in use",
	unix.EROFS:  "the device is write-protected",
	unix.ENOMEM: "there is too little memory",
	unix.ENOSYS: "the kernel is older than 5.2",
}

// create has the kernel read the filesystem. It is mounted nowhere, so it goes with the last descriptor, also when the program is
// killed.
func create(fs mounter.Filesystem, dev *os.File, options ...string) (context int, err error) {
	context, err = unix.Fsopen(string(fs), unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, mountError(err)
	}
	err = unix.FsconfigSetString(context, "source", fmt.Sprintf("/proc/self/fd/%d", dev.Fd()))
	for _, o := range options {
		if err == nil {
			err = unix.FsconfigSetFlag(context, o)
		}
	}
	if err == nil && fs == mounter.Ext4 {
		// What the superblock demands after an error may stop the machine.
		err = unix.FsconfigSetString(context, "errors", "remount-ro")
	}
	if err == nil {
		err = unix.FsconfigCreate(context)
	}
	if err != nil {
		_ = unix.Close(context)
		return -1, mountError(err)
	}
	return context, nil
}

func mountError(err error) error {
	for errno, why := range unusable {
		if errors.Is(err, errno) {
			return fmt.Errorf("mount the filesystem: %s: %w: %w", why, fault.Precondition, err)
		}
	}
	return fmt.Errorf("the kernel does not mount the filesystem (see its log): %w: %w", fault.MountFailed, err)
}

// replay mounts the filesystem for writing and unmounts it, as a pod of the restored volume would. Only the kernel can process the log
// of an xfs, and only it processes all of an ext4 that was in use: the journal and the files that were deleted while they were open.
func replay(fs mounter.Filesystem, dev *os.File) error {
	options := []string{"noinit_itable"} // nothing is written that the journal does not ask for
	if fs == mounter.XFS {
		options = []string{"nouuid"}
	}
	context, err := create(fs, dev, options...)
	if err != nil {
		return fmt.Errorf("replay the journal: %w", err)
	}
	if err := unix.Close(context); err != nil {
		return fmt.Errorf("replay the journal: unmount the filesystem: %w: %w", fault.MountFailed, err)
	}
	return nil
}

// mountReadOnly returns the root of the filesystem, which the kernel only reads.
func mountReadOnly(fs mounter.Filesystem, dev *os.File) (*os.Root, error) {
	options := []string{"ro", "noload"}
	if fs == mounter.XFS {
		options = []string{"ro", "norecovery", "nouuid"}
	}
	context, err := create(fs, dev, options...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(context) }()
	mount, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, mountError(err)
	}
	defer func() { _ = unix.Close(mount) }()
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", mount))
	if err != nil {
		return nil, fmt.Errorf("open the root of the filesystem: %w: %w", fault.VolumeDamaged, err)
	}
	return root, nil
}

// The superblock of ext4, as the kernel's documentation of its layout names the fields.
const (
	superblockAt    = 1024
	featureIncompat = 0x60 // s_feature_incompat
	featureROCompat = 0x64 // s_feature_ro_compat
	lastOrphan      = 0xe8 // s_last_orphan

	incompatRecover       = 0x4     // EXT4_FEATURE_INCOMPAT_RECOVER
	roCompatOrphanPresent = 0x10000 // EXT4_FEATURE_RO_COMPAT_ORPHAN_PRESENT
)

// isUnclean reports whether an ext4 waits for the replay of its journal, or has files that were deleted while they were open. A frozen
// filesystem has an empty journal and may have such files.
func isUnclean(dev *os.File) (bool, error) {
	super := make([]byte, superblockAt)
	if err := host.ReadFull(dev, super, superblockAt); err != nil {
		return false, err
	}
	field := func(at int) uint32 { return binary.LittleEndian.Uint32(super[at:]) }
	return field(featureIncompat)&incompatRecover != 0 || field(featureROCompat)&roCompatOrphanPresent != 0 || field(lastOrphan) != 0, nil
}
