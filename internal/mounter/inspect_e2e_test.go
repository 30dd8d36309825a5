//go:build e2e

package mounter_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

// machine is what the node program does with disks and mounts.
type machine struct {
	*mount.Mounter
	*format.Formatter
}

// newMachine returns a machine that runs the real programs, or all of them by another runner.
func newMachine(by ...host.Runner) *machine {
	return machineWith(mount.Config{Programs: append(by, host.Programs{})[0]})
}

func machineWith(cfg mount.Config) *machine {
	m := mount.New(cfg)
	return &machine{m, format.New(m.Programs)}
}

// formatted wants a device to have its filesystem.
func (m *machine) formatted(t *testing.T, dev mounter.BlockDevice, req format.Request) {
	t.Helper()
	_, err := m.EnsureFormatted(t.Context(), dev, req)
	noError(t, err)
}

// The methods below take paths and read the mount table for each step, as a call of the Node service does once.

// lookAt returns what is at a path, compared with a device.
func (m *machine) lookAt(path string, dev uint64) (mount.State, error) {
	table, err := m.Table()
	if err != nil {
		return mount.State{}, err
	}
	return table.At(path, dev)
}

// MountAt returns the topmost mount exactly at path.
func (m *machine) MountAt(path string) (mount.Mount, bool, error) {
	at, err := m.lookAt(path, 0)
	return at.Mount, at.Use != mount.Free, err
}

// IsMountOf reports whether a filesystem of the device is mounted at path.
func (m *machine) IsMountOf(path string, dev uint64) (bool, error) {
	at, err := m.lookAt(path, dev)
	return at.Use == mount.Ours && !at.Block, err
}

// IsBindOf reports whether the device's node is mounted at path.
func (m *machine) IsBindOf(path string, dev uint64) (bool, error) {
	at, err := m.lookAt(path, dev)
	return at.Use == mount.Ours && at.Block, err
}

// Holders lists what uses the device.
func (m *machine) Holders(dev uint64) ([]string, error) {
	table, err := m.Table()
	if err != nil {
		return nil, err
	}
	return table.Holders(dev)
}

// mountRequest is a Request at a path.
type mountRequest struct {
	Target     string
	Filesystem mounter.Filesystem
	Options    []string
	ReadOnly   bool
}

// MountDevice mounts the device at a path.
func (m *machine) MountDevice(ctx context.Context, dev mounter.BlockDevice, req mountRequest) error {
	if err := makeParent(req.Target); err != nil {
		return err
	}
	at, err := m.lookAt(req.Target, dev.Number())
	if err != nil {
		return err
	}
	return m.Mount(ctx, dev, at, mount.Request{Filesystem: req.Filesystem, Options: req.Options, ReadOnly: req.ReadOnly})
}

// BindDir binds what is mounted at staging.
func (m *machine) BindDir(ctx context.Context, staging, target string, o mount.BindOptions) error {
	from, mounted, err := m.MountAt(staging)
	if err != nil {
		return err
	}
	var number uint64
	if mounted {
		number = from.Device
	}
	if err := makeParent(target); err != nil {
		return err
	}
	table, err := m.Table()
	if err != nil {
		return err
	}
	staged, err := table.At(staging, number)
	if err != nil {
		return err
	}
	at, err := table.At(target, number)
	if err != nil {
		return err
	}
	return m.Bind(ctx, staged, at, o)
}

// BindDevice binds the device's node.
func (m *machine) BindDevice(ctx context.Context, dev mounter.BlockDevice, target string, readOnly bool) error {
	if err := makeParent(target); err != nil {
		return err
	}
	at, err := m.lookAt(target, dev.Number())
	if err != nil {
		return err
	}
	return m.BindNode(ctx, dev, at, readOnly)
}

// UnmountAll unmounts everything at a path.
func (m *machine) UnmountAll(ctx context.Context, path string) error {
	for {
		at, err := m.lookAt(path, 0)
		if err != nil || at.Use == mount.Free {
			return err
		}
		if err := errors.Join(mount.Flush(at), m.Unmount(ctx, at)); err != nil {
			return err
		}
	}
}

// GrowFilesystem grows the filesystem of the device that is mounted at a path.
func (m *machine) GrowFilesystem(ctx context.Context, dev mounter.BlockDevice, path string) error {
	at, err := m.lookAt(path, dev.Number())
	if err != nil {
		return err
	}
	return m.Grow(ctx, dev, at)
}

const (
	kib = int64(1) << 10
	mib = kib << 10
	gib = mib << 10
)

func makeParent(target string) error { return os.MkdirAll(filepath.Dir(target), 0o750) }
