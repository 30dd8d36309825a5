//go:build e2e

package mounter_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
)

var noError, wantKind, wantReason, until = expect.NoError, expect.Kind, expect.Reason, expect.Eventually

// F1: wherever one read fails, there is an error and no mkfs.
func TestUnreadableDiskIsNeverFormatted(t *testing.T) {
	t.Parallel()
	const size = 320 * mib
	programs := counted()
	bad, dev := newBadDisk(t, size)
	m := newMachine(programs)
	req := format.Request{Volume: "v1", Filesystem: mounter.Ext4, BlankCreated: true, FormatNonZero: true}

	refused := func(what string, at int64) {
		t.Helper()
		if fs, err := m.EnsureFormatted(t.Context(), dev, req); err == nil {
			t.Errorf("EnsureFormatted(%s, byte %d unreadable) = %s, want an error", what, at, fs)
		}
		if n := programs.runs(); n > 0 {
			t.Fatalf("mkfs ran %d times on a disk (%s) with byte %d unreadable", n, what, at)
		}
	}
	offsets := map[int64]bool{0: true, size - 1: true, size / 2 &^ 4095: false}
	for _, e := range format.ProbeExtents(size) {
		offsets[e.From], offsets[e.To-1] = true, true
	}
	for at, probed := range offsets {
		if probed {
			bad.unreadable(at)
			refused("blank", at)
		}
	}
	bad.unreadable(-1)
	// A healthy ext4 whose superblock cannot be read looks empty to blkid.
	must(t, "/sbin/mkfs.ext4", "-q", "-F", "-E", "nodiscard", dev.Path())
	for _, at := range []int64{0, 1024, 1080, 64 * kib} {
		bad.unreadable(at)
		refused("ext4", at)
	}
	bad.unreadable(-1)
	if fs, err := m.EnsureFormatted(t.Context(), dev, req); fs != mounter.Ext4 || err != nil {
		t.Errorf("EnsureFormatted(ext4 that can be read again) = %q, %v, want ext4", fs, err)
	}

	// The same disk without a fault is formatted: the refusals above were not for another reason.
	bad.wipe(size)
	if _, err := m.EnsureFormatted(t.Context(), dev, req); err != nil || programs.runs() != 1 {
		t.Errorf("EnsureFormatted(blank, readable) = %v with %d mkfs, want one", err, programs.runs())
	}
}

// TestKilledTestOfABadDisk kills a test process that uses a bad disk. No loop device, no mount and no server is left.
func TestKilledTestOfABadDisk(t *testing.T) {
	t.Parallel()
	for try := range 3 {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		noError(t, err)
		victim := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestUnreadableDiskIsNeverFormatted$")
		victim.Env = append(os.Environ(), "TMPDIR="+dir)
		noError(t, victim.Start())
		until(t, "the victim uses its disk", func() bool {
			runs, _ := filepath.Glob(filepath.Join(dir, "*", "*", "bad"))
			return len(loops.Below(dir)) == 1 && len(runs) == 1 && readsOf(loops.Below(dir)[0]) >= int64(try)
		})
		noError(t, victim.Process.Kill())
		_ = victim.Wait()
		until(t, "nothing is left", func() bool {
			table, err := os.ReadFile("/proc/self/mountinfo")
			return err == nil && !strings.Contains(string(table), dir) && len(loops.Below(dir)) == 0 && len(serversOf(t, dir)) == 0
		})
	}
}

// readsOf is how many reads a loop device has served.
func readsOf(loop string) int64 {
	var reads int64
	text, err := os.ReadFile("/sys/block/" + filepath.Base(loop) + "/stat")
	if err == nil {
		_, err = fmt.Sscan(string(text), &reads)
	}
	if err != nil {
		return -1
	}
	return reads
}

// serversOf returns the processes that serve a bad disk below a folder.
func serversOf(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	noError(t, err)
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), badDiskDir+"="+dir) {
			out = append(out, file)
		}
	}
	return out
}

// F1: the driver's own read is fine and blkid's is not: nothing is formatted.
func TestBlkidThatFailsIsNotAnAnswer(t *testing.T) {
	dev, programs := newLoop(t, small), counted()
	for name, script := range map[string]string{
		"blkid cannot read": "#!/bin/sh\nexit 4\n", "blkid is torn": "#!/bin/sh\nexit 8\n", "blkid dies": "#!/bin/sh\nkill -9 $$\n",
		"blkid sees what we do not": "#!/bin/sh\necho TYPE=zfs_member\n", "blkid mumbles": "#!/bin/sh\necho DEVNAME=x\n",
		"blkid sees our filesystem and we do not": "#!/bin/sh\necho TYPE=ext4\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			noError(t, os.WriteFile(filepath.Join(dir, "blkid"), []byte(script), 0o755))
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			_, err := newMachine(programs).EnsureFormatted(t.Context(), dev, format.Request{Volume: "v1", Filesystem: mounter.Ext4})
			if !errors.Is(err, fault.Precondition) && !errors.Is(err, fault.Unavailable) || programs.runs() > 0 {
				t.Errorf("EnsureFormatted = %v with %d mkfs, want a refusal and none", err, programs.runs())
			}
		})
	}
}
