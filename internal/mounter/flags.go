package mounter

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// mountFlags are the options that belong to a mount, not to a filesystem, and can therefore be
// compared with what the kernel says about it. relatime is left out: it is the kernel's default.
var mountFlags = []struct {
	set, unset string
	flag       uintptr
	attribute  uint64 // the same for mount_setattr(2)
}{
	{"nosuid", "suid", unix.MS_NOSUID, unix.MOUNT_ATTR_NOSUID},
	{"nodev", "dev", unix.MS_NODEV, unix.MOUNT_ATTR_NODEV},
	{"noexec", "exec", unix.MS_NOEXEC, unix.MOUNT_ATTR_NOEXEC},
	{"noatime", "atime", unix.MS_NOATIME, unix.MOUNT_ATTR_NOATIME},
	{"nodiratime", "diratime", unix.MS_NODIRATIME, unix.MOUNT_ATTR_NODIRATIME},
}

// refusedOptions would make the mount something other than one filesystem of one proven device.
var refusedOptions = []string{
	"bind", "rbind", "move", "remount", "loop", "offset", "sizelimit", "encryption", "helper",
	"shared", "rshared", "slave", "rslave", "private", "rprivate", "unbindable", "runbindable",
	"journal_dev", "journal_path", "logdev", "rtdev", "device", "X-mount.mkdir", "X-mount.subdir", "X-mount.idmap",
}

// parseMountOptions splits options, refuses the dangerous ones and takes ro and rw out.
func parseMountOptions(options []string) (rest []string, readOnly bool, err error) {
	for _, o := range splitMountOptions(options) {
		key, _, _ := strings.Cut(o, "=")
		switch {
		case slices.Contains(refusedOptions, key):
			return nil, false, fmt.Errorf("mount option %q is not allowed: %w", o, fault.InvalidArgument)
		case strings.ContainsRune(o, 0):
			return nil, false, fmt.Errorf("mount option %q cannot be read: %w", o, fault.InvalidArgument)
		case key == "ro":
			readOnly = true
		case key != "rw" && key != "defaults":
			rest = append(rest, o)
		}
	}
	return rest, readOnly, nil
}

// splitMountOptions splits at commas outside of double quotes, as mount does.
func splitMountOptions(options []string) []string {
	var out []string
	for _, words := range options {
		quoted := false
		out = append(out, strings.FieldsFunc(words, func(r rune) bool {
			quoted = quoted != (r == '"')
			return r == ',' && !quoted
		})...)
	}
	return out
}

// flagsOf returns the mount flags among options.
func flagsOf(options []string) uintptr {
	var flags uintptr
	for _, o := range options {
		for _, f := range mountFlags {
			switch o {
			case f.set:
				flags |= f.flag
			case f.unset:
				flags &^= f.flag
			}
		}
	}
	return flags
}
