//go:build e2e

package mounter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
)

const moments = 20

// killPoints returns 20 of the changing calls that a mkfs makes, the first and the last among them.
func killPoints(t *testing.T, k *killer, fs mounter.Filesystem) []int {
	t.Helper()
	newMachine(k).formatted(t, newLoop(t, small), format.Request{Volume: "v1", Filesystem: fs, History: format.NeverWritten})
	calls := k.calls(t)
	if calls < moments {
		t.Fatalf("mkfs.%s made %d changing calls: not enough for %d moments", fs, calls, moments)
	}
	var out []int
	for i := range moments {
		out = append(out, 1+i*(calls-1)/(moments-1))
	}
	t.Logf("mkfs.%s makes %d calls that change something; killed at %v", fs, calls, out)
	return out
}

// F15: the test kills mkfs with SIGKILL at 20 moments. With the record of its format the device is then formatted again, or used if
// the filesystem is complete: no moment needs a person.
func TestKilledMkfs(t *testing.T) {
	t.Parallel()
	for _, fs := range someFilesystems() {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			k := newKiller(t)
			for _, at := range killPoints(t, k, fs) {
				req := format.Request{Volume: "v1", Filesystem: fs, Size: small, History: format.NeverWritten}
				dev, call := halfFormatted(t, k, req, at)
				finished(t, newMachine(), dev, req, fmt.Sprintf("killed at call %d", call))
			}
		})
	}
}

// halfFormatted is a new device whose mkfs was killed at one of its calls. Random bytes in the filesystem
// decide about one or two of them: if this time the last one is an earlier one, that it is.
func halfFormatted(t *testing.T, k *killer, req format.Request, at int) (*loopDevice, int) {
	t.Helper()
	for range 5 {
		dev := newLoop(t, req.Size)
		k.at = at
		_, err := newMachine(k).EnsureFormatted(t.Context(), dev, req)
		if err != nil {
			return dev, at
		}
		calls := k.calls(t)
		if calls >= at {
			t.Fatalf("call %d: mkfs was killed and EnsureFormatted = nil", at)
		}
		dev.detach()
		at = calls
	}
	t.Fatalf("mkfs never makes %d calls", at)
	return nil, 0
}

// finished takes a device that a killed mkfs left behind: the record of its format lets the same volume be formatted again where
// blkid finds nothing or an unfinished xfs, and nothing else does. What is complete is used.
func finished(t *testing.T, m *machine, dev *loopDevice, req format.Request, when string) {
	t.Helper()
	before := dev.sum()
	id := signature(t, dev)
	for name, stranger := range map[string]format.Request{
		"a volume that was written and has no record": {Volume: "v2", Filesystem: req.Filesystem, History: format.Written, BlankCreated: true},
		"a record of another disk":                    {Volume: req.Volume, Filesystem: req.Filesystem, History: format.Written, Begun: format.BegunBefore},
		"a clone of it":                               {Volume: req.Volume, Filesystem: req.Filesystem, HasContent: true, Begun: format.BegunOnDevice},
		"a read-only use":                             {Volume: req.Volume, Filesystem: req.Filesystem, Forbidden: true, Begun: format.BegunOnDevice},
	} {
		if id != "" && stranger.Begun != format.BegunOnDevice {
			continue // it may be whole
		}
		got, err := m.EnsureFormatted(t.Context(), dev, stranger)
		if err == nil && id != "" {
			consistent(t, dev, req.Filesystem) // it was complete
		} else if !errors.Is(err, fault.Precondition) {
			t.Errorf("%s: EnsureFormatted for %s = %q, %v, want %v", when, name, got, err, fault.Precondition)
		}
		if dev.sum() != before {
			t.Errorf("%s: EnsureFormatted for %s changed the device", when, name)
		}
	}
	req.Begun, req.History = format.BegunOnDevice, format.Written
	_, err := m.EnsureFormatted(t.Context(), dev, req)
	if err != nil {
		t.Fatalf("%s: EnsureFormatted again with %q on the device = %v", when, id, err)
	}
	consistent(t, dev, req.Filesystem)
	if id != "" && req.Filesystem == mounter.Ext4 && dev.sum() != before {
		t.Errorf("%s: a device with %v was changed", when, id)
	}
	dev.detach()
}

// F1, F14: a record excuses nothing but what its own mkfs left.
func TestRecordBesideForeignData(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		program []string
		used    bool
	}{
		"another filesystem":           {[]string{"/sbin/mkfs.ext4", "-q", "-F", "-E", "nodiscard"}, false},
		"the filesystem, made by hand": {[]string{"/sbin/mkfs.xfs", "-q", "-f", "-K"}, true},
		"a swap area":                  {[]string{"/sbin/mkswap"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dev, programs, k := newLoop(t, small), counted(), newKiller(t)
			k.at = 3
			req := format.Request{Volume: "v1", Filesystem: mounter.XFS}
			if _, err := newMachine(k).EnsureFormatted(t.Context(), dev, req); err == nil {
				t.Fatal("mkfs was killed and EnsureFormatted = nil")
			}
			must(t, tc.program[0], append(tc.program[1:], dev.Path())...) // it has a use now
			before := dev.sum()
			req.Begun, req.FormatNonZero, req.BlankCreated = format.BegunOnDevice, true, true
			if _, err := newMachine(programs).EnsureFormatted(t.Context(), dev, req); (err == nil) != tc.used || err != nil && !errors.Is(err, fault.Precondition) {
				t.Errorf("EnsureFormatted = %v, want it used: %t", err, tc.used)
			}
			if dev.sum() != before || programs.runs() > 0 {
				t.Errorf("the device was changed, with %d mkfs", programs.runs())
			}
		})
	}
}

// F15: a filesystem of which a part is missing is neither used nor made again, whatever the records say.
func TestAPartOfAFilesystemIsNotUsed(t *testing.T) {
	t.Parallel()
	for _, fs := range allFilesystems {
		dev, programs := newLoop(t, small), counted()
		must(t, "/sbin/mkfs."+string(fs), "-q", dev.Path())
		must(t, "dd", "if=/dev/zero", "of="+dev.Path(), "bs=64k", "seek=1", "count=32", "conv=notrunc,fsync", "status=none")
		before := dev.sum()
		for name, req := range map[string]format.Request{
			"a record of the device": {Volume: "v1", Filesystem: fs, Begun: format.BegunOnDevice},
			"a note":                 {Volume: "v1", Filesystem: fs, Note: format.Unformatted},
		} {
			if _, err := newMachine(programs).EnsureFormatted(t.Context(), dev, req); fault.ReasonOf(err) != fault.FormatUnfinished {
				t.Errorf("EnsureFormatted of a part of %s with %s = %v, want %v", fs, name, err, fault.FormatUnfinished)
			}
		}
		if dev.sum() != before || programs.runs() > 0 {
			t.Errorf("the device was changed, with %d mkfs", programs.runs())
		}
	}
}

// F15: a format whose record cannot be written writes nothing to the device.
func TestRecordComesFirst(t *testing.T) {
	t.Parallel()
	dev, programs := newLoop(t, small), counted()
	before := dev.sum()
	req := format.Request{Volume: "v1", Filesystem: mounter.Ext4, Begin: func(context.Context) error { return fault.Unavailable }}
	if _, err := newMachine(programs).EnsureFormatted(t.Context(), dev, req); !errors.Is(err, fault.Unavailable) {
		t.Errorf("EnsureFormatted = %v, want %v", err, fault.Unavailable)
	}
	if dev.sum() != before || programs.runs() > 0 {
		t.Errorf("the device was changed, with %d mkfs", programs.runs())
	}
}

// F15: if the program that runs mkfs is killed, mkfs dies with it.
func TestNodeKilledInMkfs(t *testing.T) {
	t.Parallel()
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			k := newKiller(t)
			for _, at := range []int{1, 10, 50} {
				dev := newLoop(t, small)
				node := exec.CommandContext(t.Context(), os.Args[0])
				node.Env = append(os.Environ(), helperDevice+"="+dev.Path(), helperFS+"="+string(fs),
					helperDir+"="+k.dir, helperAt+"="+strconv.Itoa(at), killerNode+"=1")
				out, err := node.CombinedOutput()
				if node.ProcessState.ExitCode() != -1 {
					t.Fatalf("the node was to be killed at call %d and ended by itself: %v\n%s", at, err, out)
				}
				if n := tracees(t, dev.Path()); n > 0 {
					t.Errorf("%d programs still have the device open after their node died", n)
				}
				req := format.Request{Volume: "v1", Filesystem: fs, Size: small, History: format.NeverWritten}
				finished(t, newMachine(), dev, req, fmt.Sprintf("node killed at call %d", at))
			}
		})
	}
}

// formatAsNode is what the killed program does.
func formatAsNode() int {
	f, err := os.OpenFile(os.Getenv(helperDevice), os.O_RDWR, 0)
	if err != nil {
		return 2
	}
	at, err := strconv.Atoi(os.Getenv(helperAt))
	if err != nil {
		return 2
	}
	k := &killer{dir: os.Getenv(helperDir), at: at, count: os.DevNull}
	dev := &loopDevice{file: f, number: 1}
	_, err = newMachine(k).EnsureFormatted(context.Background(), dev,
		format.Request{Volume: "v1", Filesystem: mounter.Filesystem(os.Getenv(helperFS)), Size: small, History: format.NeverWritten})
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// tracees waits until no other process has the device open, and returns how many still have.
func tracees(t *testing.T, path string) int {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 200 {
		if openElsewhere(t, path) == 0 {
			return 0
		}
		<-tick.C
	}
	return openElsewhere(t, path)
}

func openElsewhere(t *testing.T, path string) (n int) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	noError(t, err)
	self := fmt.Sprintf("/proc/%d/", os.Getpid())
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == path && !strings.HasPrefix(link, self) {
			n++
		}
	}
	return n
}
