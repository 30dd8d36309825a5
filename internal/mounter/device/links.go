package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
)

// partition ends the link of a part of a disk.
var partition = regexp.MustCompile(`-part[0-9]+$`)

// CheckLinks returns an error for each volume's link that leads to no disk or to a disk with another identity, and the number of
// correct links. fs.ErrNotExist without a device directory: udev makes it with the first link.
func (b *ByID) CheckLinks(ctx context.Context) (right int, err error) {
	links, err := os.ReadDir(b.deviceDir)
	if err != nil {
		return 0, fmt.Errorf("list the links to the disks: %w: %w", fault.Unavailable, err)
	}
	var stale []error
	for _, link := range links {
		name := link.Name()
		if !strings.HasPrefix(name, b.linkPrefix) || partition.MatchString(name) {
			continue
		}
		kernel := b.linked(name)
		id, err := b.identity(ctx, kernel)
		switch {
		case kernel == "" || !b.exists(kernel):
			stale = append(stale, fmt.Errorf("the link %s/%s leads to %q, which is no disk: %w", b.deviceDir, name, kernel, fault.DeviceIdentity))
		case err != nil:
			stale = append(stale, fmt.Errorf("the link %s/%s leads to %s: %w: %w", b.deviceDir, name, kernel, fault.DeviceIdentity, err))
		case !slices.ContainsFunc(id.links, func(own string) bool { return strings.HasPrefix(name, own) }):
			stale = append(stale, fmt.Errorf("the link %s/%s leads to %s, which is another disk (its identity is %q): %w",
				b.deviceDir, name, kernel, append(id.serials, id.links...), fault.DeviceIdentity))
		default:
			right++
		}
	}
	return right, errors.Join(stale...)
}

// CheckSys returns an error if the settings of loop devices below a directory of sysfs cannot be written.
func CheckSys(dir string) error { return (&loop{sysDir: dir}).checkSys() }

// Volumes returns how many of this machine's disks are volumes of the cloud. It does not count disks without an identity; it
// counts loop devices in tests only.
func (b *ByID) Volumes(ctx context.Context) (int64, error) {
	all, err := os.ReadDir(filepath.Join(b.sysDir, "block"))
	if err != nil {
		return 0, fmt.Errorf("list the machine's disks: %w: %w", fault.Unavailable, err)
	}
	links, err := b.linkedDisks()
	if err != nil {
		return 0, err
	}
	var n int64
	for _, entry := range all {
		kernel := entry.Name()
		id, err := b.identity(ctx, kernel)
		if err != nil {
			continue
		}
		switch {
		case id.loop:
			if b.allowLoop && links[kernel] {
				n++
			}
		case b.isVolume(id):
			if mounted, err := b.mountedByMachine(kernel); err == nil && !mounted {
				n++
			}
		}
	}
	return n, nil
}

// linkedDisks returns the kernel's names of the disks to which links of volumes lead.
func (b *ByID) linkedDisks() (map[string]bool, error) {
	links, err := os.ReadDir(b.deviceDir)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("list the links to the disks: %w: %w", fault.Unavailable, err)
	}
	disks := map[string]bool{}
	for _, link := range links {
		if strings.HasPrefix(link.Name(), b.linkPrefix) {
			disks[b.linked(link.Name())] = true
		}
	}
	return disks, nil
}

// Number returns the device number of the spec's disk from its link and sysfs, without opening any disk.
func (b *ByID) Number(ctx context.Context, spec Spec) (uint64, error) {
	if err := checkName(spec.Name); err != nil {
		return 0, err
	}
	kernel, _, err := b.find(ctx, spec)
	if err != nil {
		return 0, fmt.Errorf("find the device of volume %s: %w", spec.Volume, err)
	}
	text, err := readText(filepath.Join(b.sysDir, "block", kernel, "dev"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("find the device of volume %s: %w: %s has gone", spec.Volume, fault.NotFound, kernel)
	}
	var number uint64
	if err == nil {
		number, err = host.DeviceNumber(text)
	}
	if err != nil {
		return 0, fmt.Errorf("find the device of volume %s: %w: %w", spec.Volume, fault.Unavailable, err)
	}
	return number, nil
}

// ByNumber opens the disk with this device number if it is a whole disk with an identity, which becomes the device's spec. It
// does not prove that the disk is the volume's: the caller knows that from the mounts.
func (b *ByID) ByNumber(ctx context.Context, volume string, number uint64) (*Device, error) {
	dir := fmt.Sprintf("%s/dev/block/%d:%d", b.sysDir, unix.Major(number), unix.Minor(number))
	target, err := os.Readlink(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("volume %s: %w: no disk has the number %d:%d", volume, fault.NotFound, unix.Major(number), unix.Minor(number))
	case err != nil:
		return nil, fmt.Errorf("volume %s: find its disk: %w: %w", volume, fault.Unavailable, err)
	}
	kernel := filepath.Base(target)
	if !b.exists(kernel) {
		// The driver uses whole disks; a partition belongs to the machine.
		return nil, fmt.Errorf("volume %s: %w: %s is not a whole disk", volume, fault.NotFound, kernel)
	}
	id, err := b.identity(ctx, kernel)
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w: device %s: %w", volume, fault.NotFound, kernel, err)
	}
	spec := Spec{Volume: volume}
	if len(id.serials) > 0 {
		spec.Serial = id.serials[0]
	} else {
		spec.Name = id.links[0] // a loop device has no serial
	}
	dev, err := b.Lookup(ctx, spec)
	if err == nil && dev.Number() != number {
		err = errors.Join(fmt.Errorf("volume %s: %w: another disk than %s has the identity %s%s",
			volume, fault.DeviceIdentity, kernel, spec.Name, spec.Serial), dev.Close())
	}
	if err != nil {
		return nil, err
	}
	return dev, nil
}
