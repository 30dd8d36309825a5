// Package mount mounts filesystems, binds them and device nodes for pods, grows them and unmounts them. Each call decides by one
// reading of the mount table; see Table.
package mount

import (
	"cmp"
	"path/filepath"

	mountutils "k8s.io/mount-utils"

	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Config configures a Mounter. The zero value is usable.
type Config struct {
	// Dir is kubelet's folder. A Mounter mounts, unmounts, makes and removes nothing outside of it. The path of Dir may have
	// symbolic links, paths below it may not. Empty means /.
	Dir   string
	Sysfs host.Sysfs
	// Programs runs programs; nil means those on PATH, of which e2fsck may use Memory, in bytes; 0: no limit.
	Programs host.Runner
	Memory   int64
	// Log may be nil.
	Log func(msg string, keysAndValues ...any)
}

// Mounter mounts the devices of one node. It is safe for concurrent use with different devices. It does not kill a command that
// changes a disk when the call's context ends, because an fsck that is killed half-way does more harm: the call then returns
// when the command has ended, and starts no other.
type Mounter struct {
	folder
	Sysfs    host.Sysfs
	Programs host.Runner // never nil
	// Stalls finds the devices that hang.
	Stalls *host.Stalls

	// mounts runs mount(8).
	mounts mountutils.Interface
	format *format.Formatter
	log    func(msg string, keysAndValues ...any)
	// listings reads the roots and the usage of filesystems, by the id of the mount.
	listings wait.Guard
}

// New returns a Mounter.
func New(cfg Config) *Mounter {
	m := &Mounter{
		folder: folder(filepath.Clean(cmp.Or(cfg.Dir, "/"))), Sysfs: cfg.Sysfs, mounts: mountutils.NewWithoutSystemd(""),
		Programs: cmp.Or[host.Runner](cfg.Programs, host.Programs{Memory: cfg.Memory}), log: cfg.Log, Stalls: host.NewStalls(cfg.Sysfs),
	}
	m.format = format.New(m.Programs)
	if m.log == nil {
		m.log = func(string, ...any) {}
	}
	return m
}
