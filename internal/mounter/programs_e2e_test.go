//go:build e2e

package mounter

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// programs counts runs of programs by wrappers that stand before the real ones on PATH.
type programs struct {
	t   *testing.T
	dir string
}

func countPrograms(t *testing.T, names ...string) programs {
	t.Helper()
	p := programs{t, t.TempDir()}
	for _, name := range names {
		real, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("%v: install e2fsprogs, xfsprogs, btrfs-progs", err)
		}
		script := fmt.Sprintf("#!/bin/sh\necho run >>%s/%s.count\nexec %s \"$@\"\n", p.dir, name, real)
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", p.dir+":"+os.Getenv("PATH"))
	return p
}

// countMkfs counts every mkfs.
func countMkfs(t *testing.T) programs {
	t.Helper()
	return countPrograms(t, "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs")
}

// runs returns how often a program ran so far; without a name, all of them.
func (p programs) runs(names ...string) int {
	p.t.Helper()
	if len(names) == 0 {
		names = []string{"mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"}
	}
	n := 0
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(p.dir, name+".count"))
		if err != nil && !os.IsNotExist(err) {
			p.t.Fatal(err)
		}
		n += strings.Count(string(b), "\n")
	}
	return n
}

// must runs a program that has to succeed.
func must(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// consistent checks an unmounted filesystem with its own checker, which must find nothing.
func consistent(t *testing.T, dev *loopDevice, fs Filesystem) {
	t.Helper()
	switch fs {
	case Ext4:
		must(t, "e2fsck", "-f", "-n", dev.Path())
	case XFS:
		must(t, "xfs_repair", "-n", dev.Path())
	case Btrfs:
		must(t, "btrfs", "check", "--readonly", dev.Path())
	}
}
