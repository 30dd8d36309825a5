package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
)

// Foreign counts the machine's disks that are not volumes of the cloud, such as its boot and swap disks, on the bus of the
// cloud's disks: they count towards the machine's attach limit too. The number does not depend on which volumes are attached. A disk
// that hangs counts, because it may be the machine's own.
func (b *ByID) Foreign() (int64, error) {
	all, err := os.ReadDir(filepath.Join(b.sysDir, "block"))
	if err != nil {
		return 0, fmt.Errorf("list the machine's disks: %w: %w", fault.Unavailable, err)
	}
	var n int64
	for _, entry := range all {
		foreign, err := b.foreign(entry.Name())
		if err != nil {
			return 0, fmt.Errorf("read disk %s: %w: %w", entry.Name(), fault.Unavailable, err)
		}
		if foreign {
			n++
		}
	}
	return n, nil
}

// diskType is the SCSI type of a disk; other types are drives for media.
const diskType = "0"

func (b *ByID) foreign(kernel string) (bool, error) {
	dir := filepath.Join(b.sysDir, "block", kernel)
	bus, err := os.Readlink(filepath.Join(dir, "device", "subsystem"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // no hardware: a loop device, or one of memory; or it has gone
	}
	if err != nil {
		return false, err
	}
	if wanted, _, named := strings.Cut(b.linkPrefix, "-"); named && filepath.Base(bus) != wanted {
		return false, nil // the cloud's disks have places on another bus
	}
	switch filepath.Base(bus) {
	case "scsi":
		if kind, err := readText(filepath.Join(dir, "device", "type")); err == nil && kind != diskType {
			return false, nil
		}
	case "virtio", "nvme", "nvme-subsystem":
	default:
		return false, nil
	}
	if b.linkPrefix == "" {
		return true, nil
	}
	// The vendor alone identifies the cloud's volumes, and sysfs has it before the rest of the identity.
	vendor, vendorErr := readText(filepath.Join(dir, "device", "vendor"))
	model, modelErr := readText(filepath.Join(dir, "device", "model"))
	if vendorErr == nil && modelErr == nil && strings.HasPrefix("scsi-0"+underscores(vendor+" "+model)+"_", b.linkPrefix) {
		return false, nil
	}
	id, err := b.identity(context.Background(), kernel)
	if err != nil || !b.isVolume(id) {
		return true, nil
	}
	return b.mountedByMachine(kernel)
}

// checkFree returns an error if the machine itself has the disk mounted. A loop device is a disk in tests only, which
// mount it anywhere.
func (b *ByID) checkFree(kernel string) error {
	if strings.HasPrefix(kernel, "loop") {
		return nil
	}
	mounted, err := b.mountedByMachine(kernel)
	if err != nil {
		return fmt.Errorf("device %s: look for mounts of it: %w: %w", kernel, fault.Unavailable, err)
	}
	if mounted {
		return fmt.Errorf("device %s: %w: this machine has it mounted where no volume is mounted, so it is none", kernel, fault.DeviceIdentity)
	}
	return nil
}

// mountedByMachine reports whether the machine has a disk, or a part of it, mounted outside kubelet's folders. A container can see
// this too: files such as /etc/hosts are bind mounts from the machine's own disk.
func (b *ByID) mountedByMachine(kernel string) (bool, error) {
	numbers, sources := map[string]bool{}, map[string]bool{}
	disks, err := b.stackedOn(kernel)
	if err != nil {
		return false, err
	}
	for _, dir := range disks {
		sources["/dev/"+filepath.Base(dir)] = true // some filesystems have numbers of their own
		if number, err := readText(filepath.Join(dir, "dev")); err == nil {
			numbers[number] = true
		}
		if name, err := readText(filepath.Join(dir, "dm", "name")); err == nil {
			sources["/dev/mapper/"+name] = true
		}
	}
	mounts, err := host.Mounts(b.mounts)
	if err != nil {
		return false, err
	}
	for _, m := range mounts {
		if !numbers[fmt.Sprintf("%d:%d", m.Major, m.Minor)] && !sources[m.Source] {
			continue
		}
		if !b.isOfVolume(m.Mountpoint) {
			return true, nil
		}
	}
	return false, nil
}

// isOfVolume reports whether a volume may be mounted there: below plugins or pods of the kubelet's folder, or anywhere below the folder
// of another orchestrator, which has no pods in it.
func (b *ByID) isOfVolume(mountpoint string) bool {
	if strings.Contains(mountpoint, b.kubeletDir+"/plugins/") || strings.Contains(mountpoint, b.kubeletDir+"/pods/") {
		return true
	}
	if b.kubeletDir == "" || !strings.HasPrefix(mountpoint, b.kubeletDir+"/") {
		return false
	}
	_, err := os.Stat(b.kubeletDir + "/pods")
	return errors.Is(err, os.ErrNotExist)
}

// stackedOn returns the sysfs folders of a disk, its partitions, and the devices on top of these: logical volumes, encryption
// mappings, RAID arrays.
func (b *ByID) stackedOn(kernel string) (dirs []string, err error) {
	const deepest = 16 // no machine stacks so many, and no link may lead in a circle
	next := []string{kernel}
	for level := 0; level < deepest && len(next) > 0; level++ {
		var above []string
		for _, name := range next {
			dir := filepath.Join(b.sysDir, "block", name)
			parts, err := filepath.Glob(filepath.Join(dir, name+"*"))
			if err != nil {
				return nil, err
			}
			for _, part := range append(parts, dir) {
				dirs = append(dirs, part)
				holders, err := os.ReadDir(filepath.Join(part, "holders"))
				if err != nil && !errors.Is(err, os.ErrNotExist) {
					return nil, err
				}
				for _, holder := range holders {
					above = append(above, holder.Name())
				}
			}
		}
		next = above
	}
	return dirs, nil
}

// Release proves that the disk is mounted in no mount namespace of this machine and not open exclusively, and writes back its
// cache, because the controller is about to detach it. fault.Busy while a program uses the disk. Without the disk it does
// nothing.
func (b *ByID) Release(ctx context.Context, spec Spec) error {
	dev, err := b.Lookup(ctx, Spec{Volume: spec.Volume, Name: spec.Name, Serial: spec.Serial})
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(dev.flushAlone(ctx), dev.Close())
}

// flushAlone writes back the cache of a disk that no other program uses. A filesystem that is mounted in another mount namespace
// would have dirty data that a flush of the disk does not write.
func (d *Device) flushAlone(ctx context.Context) error {
	var alone *os.File
	busy := func(err error) bool { return errors.Is(err, unix.EBUSY) }
	err := untilReleased.Retry(ctx, busy, func() error {
		fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", d.file.Fd()), unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
		alone = os.NewFile(uintptr(fd), d.path)
		return err
	})
	switch {
	case busy(err):
		return fmt.Errorf("%s of volume %s is unmounted here but in use still: %w: %s", d.path, d.spec.Volume, fault.Busy, holderOf(d.number))
	case err != nil:
		return fmt.Errorf("open %s of volume %s alone: %w: %w", d.path, d.spec.Volume, fault.Unavailable, err)
	}
	return d.flush(alone)
}

// holderOf names what may use a device that is open exclusively, and the command that finds it.
func holderOf(number uint64) string {
	return fmt.Sprintf("a program with mounts of its own has it (on the machine, `grep -l ' %d:%d ' /proc/[0-9]*/mountinfo` finds it; end it, "+
		"and let its volumes have mountPropagation: HostToContainer), or LVM or an array is built on it", unix.Major(number), unix.Minor(number))
}

// flush writes back the cache and closes the disk.
func (d *Device) flush(alone *os.File) error {
	if err := errors.Join(alone.Sync(), host.Exclusive{File: alone}.Close()); err != nil {
		return fmt.Errorf("flush %s of volume %s: %w: %w", d.path, d.spec.Volume, fault.Unavailable, err)
	}
	return nil
}
