package mount

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// mountFlags are the options of a mount, as opposed to those of a filesystem, so they can be compared with the mount table. relatime
// is not among them, because it is the kernel's default.
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

// A class may set these options only: others name a second device or a file of the node, mount a part of the filesystem, change
// its propagation, skip its journal or stop the machine.
var (
	// flagOptions apply to every filesystem and take no value. With a value, as in ro=recursive, mount(8) does something else.
	flagOptions = strings.Fields(`defaults ro rw atime noatime diratime nodiratime relatime norelatime strictatime nostrictatime
		lazytime nolazytime suid nosuid dev nodev exec noexec sync async dirsync`)

	// labelOptions are SELinux labels. Only their values may have quotes, because a label may contain commas.
	labelOptions = []string{"context", "fscontext", "defcontext", "rootcontext"}

	// filesystemOptions are passed to the kernel, with a value or without.
	filesystemOptions = map[mounter.Filesystem][]string{
		mounter.Ext4: strings.Fields(`acl user_xattr barrier nobarrier data data_err commit delalloc nodelalloc
			journal_checksum nojournal_checksum journal_ioprio min_batch_time max_batch_time
			discard nodiscard block_validity noblock_validity dioread_lock dioread_nolock max_dir_size_kb i_version
			init_itable noinit_itable inode_readahead_blks stripe auto_da_alloc noauto_da_alloc mb_optimize_scan nombcache
			grpid nogrpid bsdgroups sysvgroups bsddf minixdf resuid resgid errors quota noquota usrquota grpquota prjquota`),
		mounter.XFS: strings.Fields(`allocsize discard nodiscard grpid nogrpid bsdgroups sysvgroups filestreams inode32 inode64
			largeio nolargeio logbufs logbsize noalign nouuid swalloc wsync noquota
			quota usrquota uquota qnoenforce uqnoenforce grpquota gquota gqnoenforce prjquota pquota pqnoenforce`),
	}

	// errorPolicies are the values of ext4's option errors; the third, panic, stops the machine.
	errorPolicies = []string{"remount-ro", "continue"}
)

// ParseMountOptions splits the flags as mount(8) splits its -o, refuses what a class may not set and removes ro and rw. An error
// never contains a value, because flags may contain secrets.
func ParseMountOptions(fs mounter.Filesystem, flags []string) (rest []string, readOnly bool, err error) {
	if fs, err = mounter.ParseFilesystem(string(fs)); err != nil {
		return nil, false, err
	}
	for _, option := range splitMountOptions(flags) {
		key, value, hasValue := strings.Cut(option, "=")
		if problem := checkMountOption(fs, key, value, hasValue); problem != "" {
			return nil, false, fmt.Errorf("mount options of %s: %s: %w", fs, problem, fault.InvalidArgument)
		}
		switch key {
		case "ro":
			readOnly = true
		case "rw", "defaults":
		default:
			rest = append(rest, option)
		}
	}
	return rest, readOnly, nil
}

// checkMountOption returns what is wrong with an option, or "".
func checkMountOption(fs mounter.Filesystem, key, value string, hasValue bool) string {
	switch {
	case strings.ContainsFunc(key, func(r rune) bool { return !valueRune(r) }):
		return "a name has a character that no option has"
	case slices.Contains(flagOptions, key):
		if hasValue {
			return key + " takes no value"
		}
	case slices.Contains(labelOptions, key):
		if value == "" || strings.ContainsFunc(unquote(value), func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
			return key + " has a value that is not a label, which may stand in one pair of quotes"
		}
	case !slices.Contains(filesystemOptions[fs], key):
		return fmt.Sprintf("%.40q is not one that a class may set (the chapter Mount options of docs/operations.md lists them)", key)
	case strings.ContainsFunc(value, func(r rune) bool { return !valueRune(r) }):
		return key + " has a value with a character that no value has"
	case key == "errors" && !slices.Contains(errorPolicies, value):
		return key + " has a value that is not one of " + strings.Join(errorPolicies, ", ")
	}
	return ""
}

// valueRune accepts the characters of names and plain values: no quote, backslash or slash, so no path either.
func valueRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-.:+", r)
}

// unquote removes one pair of quotes around a value.
func unquote(value string) string {
	if inner, ok := strings.CutPrefix(value, `"`); ok {
		if inner, ok = strings.CutSuffix(inner, `"`); ok {
			return inner
		}
	}
	return value
}

// splitMountOptions splits at commas outside of double quotes. mount(8) gets the elements as one text, so a quote that one element
// opens ends in a later one.
func splitMountOptions(options []string) []string {
	quoted := false
	return strings.FieldsFunc(strings.Join(options, ","), func(r rune) bool {
		quoted = quoted != (r == '"')
		return r == ',' && !quoted
	})
}

// withPolicy adds the driver's default options unless the class sets them.
func withPolicy(fs mounter.Filesystem, options []string) []string {
	switch {
	case fs == mounter.XFS:
		// A volume and its clone have the same UUID and may be on one node. The check that nouuid disables, against mounting one
		// filesystem twice, is done by the device number.
		return append([]string{"nouuid"}, options...)
	case fs == mounter.Ext4 && !slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(o, "errors=") }):
		// The default in the superblock may be to continue after an error, or in a crafted image to stop the machine.
		return append([]string{"errors=remount-ro"}, options...)
	}
	return options
}

// flagsOf returns the mount flags among options. With strictatime the kernel ignores noatime in any order (fs/namespace.c, path_mount).
func flagsOf(options []string) uintptr {
	var flags uintptr
	strict := false
	for _, o := range options {
		strict = o == "strictatime" || strict && o != "nostrictatime"
		for _, f := range mountFlags {
			switch o {
			case f.set:
				flags |= f.flag
			case f.unset:
				flags &^= f.flag
			}
		}
	}
	if strict {
		flags &^= unix.MS_NOATIME
	}
	return flags
}
