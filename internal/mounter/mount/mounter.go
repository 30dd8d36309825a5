// Package mount mounts filesystems and device nodes, binds them for pods, grows them and takes them down again. Table, in
// table.go, is what each call decides by.
package mount

import (
	"cmp"
	"path/filepath"

	mountutils "k8s.io/mount-utils"

	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Config is what a Mounter needs from outside. The zero value is usable.
type Config struct {
	// Dir is the kubelet's folder: nothing is mounted, unmounted, made or removed elsewhere. The way to it may lead
	// through symbolic links, the way from it to a path may not. Empty means /.
	Dir   string
	Sysfs host.Sysfs
	// Programs runs the programs; nil means real ones, found on PATH.
	Programs host.Runner
	// Log gets what an operator may want to know later; may be nil.
	Log func(msg string, keysAndValues ...any)
}

// Mounter does the work. It is safe for concurrent use, but the caller lets only one call at a time
// work on a device. A command that changes a disk is not broken off when the call's context ends,
// because an fsck that is killed half-way is worse than one whose result is not awaited: the call
// returns when the command has ended, and begins no other.
type Mounter struct {
	folder
	Sysfs    host.Sysfs
	Programs host.Runner // never nil

	// mounts runs mount(8).
	mounts mountutils.Interface
	format *format.Formatter
	log    func(msg string, keysAndValues ...any)
	// listings reads the roots of filesystems, by the id of the mount.
	listings wait.Guard
}

// New returns a Mounter.
func New(cfg Config) *Mounter {
	m := &Mounter{
		folder: folder(filepath.Clean(cmp.Or(cfg.Dir, "/"))), Sysfs: cfg.Sysfs, mounts: mountutils.NewWithoutSystemd(""),
		Programs: cmp.Or[host.Runner](cfg.Programs, host.Programs{}), log: cfg.Log,
	}
	m.format = format.New(m.Programs)
	if m.log == nil {
		m.log = func(string, ...any) {}
	}
	return m
}
