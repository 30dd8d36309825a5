// Package pool has the types that all pools of a node share: ids and records of volumes and snapshots, requests, the lock. Package
// files stores volumes as files of a filesystem, package lvm as logical volumes of a volume group, and package pools opens the
// pools of a node and finds volumes in them.
package pool

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The sizes a volume can have, in bytes.
const (
	// SizeStep divides every size. It is a multiple of every block, sector and page size in use and of
	// the ranges that format probes read, and it divides the usual sizes in manifests.
	SizeStep int64 = 1 << 20
	// SmallestVolume is the minimum size: ext4 with an internal journal fits.
	SmallestVolume = 16 * SizeStep
	// LargestVolume is below the maximum file size of ext4 with 4 KiB blocks, 16 TiB less one block.
	LargestVolume int64 = 15 << 40
)

// Config is the location and the node of a pool.
type Config struct {
	// Name is the pool's name in classes and ids. A pool of another name is refused. Empty means DefaultName, or with MustExist
	// whatever name the pool has.
	Name string
	// Dir is where the pool's filesystem is mounted, an absolute path. Or it is a volume group of LVM: lvm:VG.
	Dir string
	// Node is the name of the node that the pool belongs to. A pool of another node is refused.
	// Empty only with MustExist: whatever node pool.json names.
	Node string
	// MustExist refuses a filesystem without a pool instead of creating one. In a pools.Set a pool that is ErrNotHere then counts as missing.
	MustExist bool
	// MountTable is the kernel's; empty means host.MountTable.
	MountTable string
	// SysDir is where the kernel lists block devices; empty means /sys/block.
	SysDir string
	// LockDir is where volume groups have their locks; empty means /run/cloudblock-csi.
	LockDir string
	// LVMDir is where LVM has its settings and devices files; empty means /etc/lvm.
	LVMDir string
	// LVM is the node's; nil means the program lvm.
	LVM LVM
	// Progress, if set, is called with the progress of the zeroing of logical volumes, from other goroutines.
	Progress func(Progress)
}

// Group returns the volume group of a Config; false if the pool is a filesystem.
func (c Config) Group() (name string, ok bool) { return strings.CutPrefix(c.Dir, "lvm:") }

// CheckNode refuses a Config without a valid node. With MustExist the node may be empty, because the pool has stored it.
func (c Config) CheckNode() error {
	if c.Node == "" && c.MustExist {
		return nil
	}
	return CheckNode(c.Node)
}

// CheckOwnName refuses a pool that was made with another name, which the ids of its volumes contain.
func (c Config) CheckOwnName(has string) error {
	if want := c.OwnName(); want != "" && want != has {
		return fmt.Errorf("its name is %q, not %q; mount the right disk, or call it %s in --local-pool: %w", has, want, has, fault.PoolUnusable)
	}
	return nil
}

// OwnName returns the required name of the pool; "" means any.
func (c Config) OwnName() string {
	if c.MustExist {
		return c.Name
	}
	return cmp.Or(c.Name, DefaultName)
}

// LVM is the LVM of a node.
type LVM interface {
	// Run runs a command, without a time limit, and returns its output. The volume group is that of --devicesfile.
	Run(args ...string) ([]byte, error)
	// Open opens the device of a logical volume exclusively, by its path below /dev, and checks its UUID in the kernel. fault.Busy
	// while another program has it open exclusively.
	Open(path, uuid string) (ZeroedDevice, error)
	// Clear drops the inactive table of a device, by the kernel's name of the device.
	Clear(device string) error
}

// ZeroedDevice is an open block device. Zero makes a range of it read as zeros, durably.
type ZeroedDevice = interface {
	io.Closer
	Zero(from, length int64) error
}

// Progress is the progress of the zeroing of a volume.
type Progress struct {
	// Target is the name of the logical volume.
	Target      string
	Done, Total int64
	// Ended is set in the last report, which has the outcome in Err.
	Ended bool
	Err   error
}
