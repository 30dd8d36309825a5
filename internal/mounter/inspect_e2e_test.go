//go:build e2e

package mounter

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// The methods below take paths and read the mount table for each step, as a call of the Node service does once.

// lookAt returns what is at a path, compared with a device.
func (m *Mounter) lookAt(path string, dev uint64) (State, error) {
	table, err := m.Table()
	if err != nil {
		return State{}, err
	}
	return table.At(path, dev)
}

// MountAt returns the topmost mount exactly at path.
func (m *Mounter) MountAt(path string) (Mount, bool, error) {
	at, err := m.lookAt(path, 0)
	return at.Mount, at.Use != Free, err
}

// IsMountOf reports whether a filesystem of the device is mounted at path.
func (m *Mounter) IsMountOf(path string, dev uint64) (bool, error) {
	at, err := m.lookAt(path, dev)
	return at.Use == Ours && !at.Block, err
}

// IsBindOf reports whether the device's node is mounted at path.
func (m *Mounter) IsBindOf(path string, dev uint64) (bool, error) {
	at, err := m.lookAt(path, dev)
	return at.Use == Ours && at.Block, err
}

// Holders lists what uses the device.
func (m *Mounter) Holders(dev uint64) ([]string, error) {
	table, err := m.Table()
	if err != nil {
		return nil, err
	}
	return table.Holders(dev)
}

// mountRequest is a MountRequest at a path.
type mountRequest struct {
	Target     string
	Filesystem Filesystem
	Options    []string
	ReadOnly   bool
}

// MountDevice mounts the device at a path.
func (m *Mounter) MountDevice(ctx context.Context, dev BlockDevice, req mountRequest) error {
	if err := makeParent(req.Target); err != nil {
		return err
	}
	at, err := m.lookAt(req.Target, dev.Number())
	if err != nil {
		return err
	}
	return m.Mount(ctx, dev, at, MountRequest{Filesystem: req.Filesystem, Options: req.Options, ReadOnly: req.ReadOnly})
}

// BindDir binds what is mounted at staging.
func (m *Mounter) BindDir(ctx context.Context, staging, target string, o BindOptions) error {
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
func (m *Mounter) BindDevice(ctx context.Context, dev BlockDevice, target string, readOnly bool) error {
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
func (m *Mounter) UnmountAll(ctx context.Context, path string) error {
	for {
		at, err := m.lookAt(path, 0)
		if err != nil || at.Use == Free {
			return err
		}
		if err := errors.Join(m.Flush(at), m.Unmount(ctx, at)); err != nil {
			return err
		}
	}
}

// GrowFilesystem grows the filesystem of the device that is mounted at a path.
func (m *Mounter) GrowFilesystem(ctx context.Context, dev BlockDevice, path string) error {
	at, err := m.lookAt(path, dev.Number())
	if err != nil {
		return err
	}
	return m.Grow(ctx, dev, at)
}

func makeParent(target string) error { return os.MkdirAll(filepath.Dir(target), 0o750) }
