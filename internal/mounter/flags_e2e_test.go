//go:build e2e

package mounter_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

// optionValues are values for the options that need one; several options are tried with each.
var optionValues = map[string][]string{
	"data": {"ordered", "writeback", "journal"}, "data_err": {"ignore", "abort"}, "errors": {"remount-ro", "continue"},
	"commit": {"30"}, "stripe": {"16"}, "init_itable": {"", "10"}, "resuid": {"1"}, "resgid": {"1"},
	"journal_ioprio": {"3"}, "min_batch_time": {"0"}, "max_batch_time": {"15000"}, "max_dir_size_kb": {"1024"},
	"inode_readahead_blks": {"32"}, "mb_optimize_scan": {"0"}, "auto_da_alloc": {"", "1"},
	"allocsize": {"64k"}, "logbufs": {"8"}, "logbsize": {"256k"},
	"compress": {"", "zstd:3", "lzo", "no"}, "compress-force": {"", "zlib"}, "max_inline": {"2048"}, "metadata_ratio": {"8"},
	"thread_pool": {"4"}, "space_cache": {"v2"}, "discard": {""},
	"context": {`"system_u:object_r:container_file_t:s0:c1,c2"`}, "fscontext": {"system_u:object_r:fs_t:s0"},
	"defcontext": {"system_u:object_r:file_t:s0"}, "rootcontext": {"system_u:object_r:root_t:s0"},
}

// TestEveryAllowedMountOptionMounts: an option that the list allows is one that the kernel takes.
func TestEveryAllowedMountOptionMounts(t *testing.T) {
	t.Parallel()
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			m := newMachine()
			dev, staging := staged(t, m, fs, small)
			takeDown(t, m, dev, staging)
			for _, name := range documentedOptions(t, "all", "all, with an SELinux label", string(fs)) {
				values := optionValues[name]
				if values == nil {
					values = []string{""}
				}
				for _, value := range values {
					option := strings.TrimSuffix(name+"="+value, "=")
					switch err := m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: fs, Options: []string{option}}); {
					case err == nil:
						takeDown(t, m, dev, staging)
					case isQuota(name):
						t.Logf("%s: left out: needs a kernel with quotas and a filesystem made for them", option)
					default:
						t.Errorf("%s: %v", option, err)
					}
				}
			}
		})
	}
}

// documentedOptions reads rows of the chapter that a unit test compares with the lists of package mount.
func documentedOptions(t *testing.T, rows ...string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	noError(t, err)
	var options []string
	_, chapter, _ := strings.Cut(string(text), "\n## Mount options\n")
	for _, row := range rows {
		_, after, found := strings.Cut(chapter, "\n| "+row+" | `")
		list, _, _ := strings.Cut(after, "` |\n")
		if !found {
			t.Fatalf("docs/operations.md lacks the row %q", row)
		}
		options = append(options, strings.Split(list, "` `")...)
	}
	return options
}

func isQuota(option string) bool {
	return option != "noquota" && (strings.HasSuffix(option, "quota") || strings.HasSuffix(option, "qnoenforce"))
}

// TestARepeatedMountWithContradictoryOptions: what the kernel made of the options is as requested.
func TestARepeatedMountWithContradictoryOptions(t *testing.T) {
	t.Parallel()
	m := newMachine()
	dev, staging := staged(t, m, mounter.Ext4, small)
	takeDown(t, m, dev, staging)
	target := filepath.Join(t.TempDir(), "mount")
	for _, options := range []string{
		"noatime,strictatime", "strictatime,noatime", "noatime,strictatime,nostrictatime", "noatime,relatime", "noatime,atime", "noexec,exec",
	} {
		flags := []string{options}
		for range 2 {
			if err := m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: mounter.Ext4, Options: flags}); err != nil {
				t.Errorf("MountDevice with %s = %v", options, err)
			}
			if err := m.BindDir(t.Context(), staging, target, mount.BindOptions{Options: flags}); err != nil {
				t.Errorf("BindDir with %s = %v", options, err)
			}
		}
		takeDown(t, m, dev, target, staging)
	}
}

// TestQuotesAcrossFlagsAreRefused: on a real volume nothing is mounted.
func TestQuotesAcrossFlagsAreRefused(t *testing.T) {
	t.Parallel()
	m := newMachine()
	dev, staging := staged(t, m, mounter.Ext4, small)
	takeDown(t, m, dev, staging)
	for _, options := range [][]string{
		{`x-a="1`, `2",loop`}, {`x-a="1`, `2",X-mount.subdir=lost+found`}, {"errors=panic"}, {"verity.hashdevice=/dev/null"},
	} {
		err := m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: mounter.Ext4, Options: options})
		if fault.Of(err) != fault.InvalidArgument {
			t.Errorf("MountDevice with %q = %v, want %v", options, err, fault.InvalidArgument)
		}
		if at, mounted, err := m.MountAt(staging); mounted || err != nil {
			t.Errorf("MountAt after %q = %+v, %v, want nothing", options, at, err)
		}
	}
}

// TestExt4StopsWritingAfterAnError: whatever the superblock says, damage makes the volume read-only, unless the
// class asks for the contrary.
func TestExt4StopsWritingAfterAnError(t *testing.T) {
	t.Parallel()
	m := newMachine()
	dev, staging := staged(t, m, mounter.Ext4, small)
	takeDown(t, m, dev, staging)
	must(t, "tune2fs", "-e", "panic", dev.Path())
	for policy, options := range map[string][]string{"remount-ro": nil, "continue": {"errors=continue"}} {
		noError(t, m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: mounter.Ext4, Options: options}))
		shown, err := os.ReadFile(filepath.Join("/proc/fs/ext4", filepath.Base(dev.Path()), "options"))
		noError(t, err)
		if want := "errors=" + policy + "\n"; !strings.Contains(string(shown), want) {
			t.Errorf("with options %q the kernel shows\n%s, want %s", options, shown, want)
		}
		takeDown(t, m, dev, staging)
	}
}
