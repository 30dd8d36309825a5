//go:build e2e

package mounter_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

// These variables make the test binary a node program that publishes, to be killed on its way.
const (
	bindStaging = "MOUNTER_BIND_STAGING"
	bindDevice  = "MOUNTER_BIND_DEVICE"
	bindTarget  = "MOUNTER_BIND_TARGET"
)

// TestBindReadOnlyAsNode is no test of its own: TestKilledWhilePublishingReadOnly runs it in a child.
func TestBindReadOnlyAsNode(t *testing.T) {
	target := os.Getenv(bindTarget)
	if target == "" {
		return
	}
	if node := os.Getenv(bindDevice); node != "" {
		f, err := os.OpenFile(node, os.O_RDWR, 0)
		noError(t, err)
		var st unix.Stat_t
		noError(t, unix.Fstat(int(f.Fd()), &st))
		noError(t, newMachine().BindDevice(t.Context(), &loopDevice{t: t, file: f, number: st.Rdev}, target, true))
		return
	}
	noError(t, newMachine().BindDir(t.Context(), os.Getenv(bindStaging), target, mount.BindOptions{ReadOnly: true, Options: []string{"noexec"}}))
}

// TestKilledWhilePublishingReadOnly kills a publish at each of its system calls. The target is then
// either free or read-only, never writable, and the same call again finishes the job.
func TestKilledWhilePublishingReadOnly(t *testing.T) {
	m := newMachine()
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			_, staging := staged(t, m, fs, small)
			finishes(t, staging, "", func(target string) error {
				return m.BindDir(t.Context(), staging, target, mount.BindOptions{ReadOnly: true, Options: []string{"noexec"}})
			})
		})
	}
	t.Run("raw block", func(t *testing.T) {
		dev := newLoop(t, small)
		finishes(t, "", dev.Path(), func(target string) error { return m.BindDevice(t.Context(), dev, target, true) })
	})
}

// finishes kills a publish at one call after the other until it runs to its end.
func finishes(t *testing.T, staging, device string, again func(target string) error) {
	t.Helper()
	m := newMachine()
	for at := 1; ; at++ {
		target := filepath.Join(t.TempDir(), "target")
		count, code := killedAt(t, at, bindStaging+"="+staging, bindDevice+"="+device, bindTarget+"="+target)
		found, mounted, err := m.MountAt(target)
		noError(t, err)
		if mounted && !found.ReadOnly() {
			t.Errorf("killed at call %d: the target is mounted with %v, want nothing or read-only", at, found.AllOptions())
		}
		if err := again(target); err != nil {
			t.Errorf("killed at call %d: the same call again = %v, want no error", at, err)
		}
		if found, _, err := m.MountAt(target); err != nil || !found.ReadOnly() {
			t.Errorf("killed at call %d: after the same call %+v, %v, want a read-only mount", at, found, err)
		}
		noError(t, errors.Join(m.UnmountAll(t.Context(), target), m.RemoveTarget(target)))
		if count < at {
			if code != 0 || at < 4 { // clone, attributes, move
				t.Errorf("the call that nobody killed made %d calls and ended with code %d, want at least 3 and 0", count, code)
			}
			return
		}
	}
}

// killedAt runs the publish and kills it as it enters its at-th call that changes mounts or folders.
func killedAt(t *testing.T, at int, env ...string) (count, code int) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(os.Args[0], "-test.run=^TestBindReadOnlyAsNode$")
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	noError(t, cmd.Start())
	count, code = trace(cmd.Process.Pid, unix.PTRACE_O_TRACECLONE, changesMounts, func(count int) {
		if count == at {
			_ = unix.Kill(cmd.Process.Pid, unix.SIGKILL)
		}
	})
	_ = cmd.Process.Release()
	return count, code
}

func changesMounts(number uint64) bool {
	switch number {
	case unix.SYS_MKDIRAT, unix.SYS_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT, unix.SYS_UMOUNT2:
		return true
	}
	return false
}

// TestBindIsNeverChangedToFit: a target that somebody may be using keeps its access.
func TestBindIsNeverChangedToFit(t *testing.T) {
	t.Parallel()
	m, dir := newMachine(), t.TempDir()
	dev, staging := staged(t, m, mounter.Ext4, small)
	tests := map[string]struct{ has, asked mount.BindOptions }{
		"read-only onto writable":  {mount.BindOptions{}, mount.BindOptions{ReadOnly: true}},
		"writable onto read-only":  {mount.BindOptions{ReadOnly: true}, mount.BindOptions{}},
		"noexec onto executable":   {mount.BindOptions{}, mount.BindOptions{Options: []string{"noexec"}}},
		"ro by option on writable": {mount.BindOptions{}, mount.BindOptions{Options: []string{"ro"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			target := filepath.Join(dir, fmt.Sprintf("target-%d", len(name)))
			noError(t, m.BindDir(t.Context(), staging, target, tc.has))
			before, _, err := m.MountAt(target)
			noError(t, err)
			wantKind(t, "BindDir", m.BindDir(t.Context(), staging, target, tc.asked), fault.Conflict)
			if after, _, err := m.MountAt(target); err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("the mount is %+v, %v, want %+v as before", after, err, before)
			}
			wantKind(t, "BindDir as it is", m.BindDir(t.Context(), staging, target, tc.has), fault.None)
			noError(t, errors.Join(m.UnmountAll(t.Context(), target), m.RemoveTarget(target)))
		})
	}
	node, readOnly := filepath.Join(dir, "node"), filepath.Join(dir, "node-ro")
	noError(t, errors.Join(m.BindDevice(t.Context(), dev, node, false), m.BindDevice(t.Context(), dev, readOnly, true)))
	wantKind(t, "BindDevice read-only onto a writable one", m.BindDevice(t.Context(), dev, node, true), fault.Conflict)
	wantKind(t, "BindDevice writable onto a read-only one", m.BindDevice(t.Context(), dev, readOnly, false), fault.Conflict)
	takeDown(t, m, dev, node, readOnly, staging)
}
