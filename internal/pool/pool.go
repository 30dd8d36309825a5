// Package pool is what the pools of one node have in common, whatever keeps their volumes: the ids and records of volumes and
// snapshots, requests, the lock. Package files keeps volumes as files of a filesystem, package lvm as logical volumes of a volume
// group, and package pools opens the pools of a node and finds a volume in them.
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
	// MustExist refuses a filesystem without a pool instead of creating one. In a pools.Set the pool is missing where it is ErrNotHere.
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

// Group returns the volume group of a Config, and whether it is that of one.
func (c Config) Group() (name string, ok bool) { return strings.CutPrefix(c.Dir, "lvm:") }

// CheckNode refuses a configuration without a node, which a pool that exists names itself.
func (c Config) CheckNode() error {
	if c.Node == "" && c.MustExist {
		return nil
	}
	return CheckNode(c.Node)
}

// CheckOwnName refuses a pool that was made under another name: the ids of its volumes have that one.
func (c Config) CheckOwnName(has string) error {
	if want := c.OwnName(); want != "" && want != has {
		return fmt.Errorf("its name is %q, not %q; mount the right disk, or call it %s in --local-pool: %w", has, want, has, fault.PoolUnusable)
	}
	return nil
}

// OwnName returns the name that the pool has to have, or nothing if that is any.
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
	// Open opens the device of a logical volume exclusively, by its path below /dev and the UUID that the kernel has for it.
	// fault.Busy while another program has it open so.
	Open(path, uuid string) (ZeroedDevice, error)
	// Clear drops the table that a command has loaded for a device and not made live. The device is named as the kernel names it.
	Clear(device string) error
}

// ZeroedDevice is a block device on which zeros are written: Zero makes a range read as zeros, durably.
type ZeroedDevice = interface {
	io.Closer
	Zero(from, length int64) error
}

// Progress is how far the writing of zeros to a volume has come.
type Progress struct {
	// Target names the volume as messages do.
	Target      string
	Done, Total int64
	// Ended is set in the last report only; Err is the outcome.
	Ended bool
	Err   error
}
