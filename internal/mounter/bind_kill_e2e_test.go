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
	var err error
	if node := os.Getenv(bindDevice); node != "" {
		f, openErr := os.OpenFile(node, os.O_RDWR, 0)
		if openErr != nil {
			t.Fatal(openErr)
		}
		var st unix.Stat_t
		if statErr := unix.Fstat(int(f.Fd()), &st); statErr != nil {
			t.Fatal(statErr)
		}
		err = newMachine().BindDevice(t.Context(), &loopDevice{t: t, file: f, number: st.Rdev}, target, true)
	} else {
		err = newMachine().BindDir(t.Context(), os.Getenv(bindStaging), target, mount.BindOptions{ReadOnly: true, Options: []string{"noexec"}})
	}
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		if mounted && !found.ReadOnly() {
			t.Errorf("killed at call %d: the target is mounted with %v, want nothing or read-only", at, found.AllOptions())
		}
		if err := again(target); err != nil {
			t.Errorf("killed at call %d: the same call again = %v, want no error", at, err)
		}
		if found, _, err := m.MountAt(target); err != nil || !found.ReadOnly() {
			t.Errorf("killed at call %d: after the same call %+v, %v, want a read-only mount", at, found, err)
		}
		if err := errors.Join(m.UnmountAll(t.Context(), target), m.RemoveTarget(target)); err != nil {
			t.Fatal(err)
		}
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
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	count, code = traceCalls(cmd.Process.Pid, func(number uint64, seen int) bool {
		return changesMounts(number) && seen+1 == at
	}, changesMounts)
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

// traceCalls lets a traced program run, counts the calls that counts says, and kills it where kill says.
func traceCalls(pid int, kill func(number uint64, seen int) bool, counts func(uint64) bool) (seen, code int) {
	var status unix.WaitStatus
	_, _ = unix.Wait4(pid, &status, unix.WALL, nil)
	_ = unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL)
	_ = unix.PtraceSyscall(pid, 0)
	for {
		who, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return seen, 1
		case who == pid && status.Exited():
			return seen, status.ExitStatus()
		case who == pid && status.Signaled():
			return seen, 128 + int(status.Signal())
		case !status.Stopped():
			continue
		}
		deliver := 0
		switch signal := status.StopSignal(); {
		case signal == unix.SIGTRAP|0x80:
			if number, entry := syscallOf(who); entry && counts(number) {
				if kill(number, seen) {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
				seen++
			}
		case signal != unix.SIGTRAP && signal != unix.SIGSTOP:
			deliver = int(signal)
		}
		_ = unix.PtraceSyscall(who, deliver)
	}
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
			if err := m.BindDir(t.Context(), staging, target, tc.has); err != nil {
				t.Fatal(err)
			}
			before, _, err := m.MountAt(target)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.BindDir(t.Context(), staging, target, tc.asked); !errors.Is(err, fault.Conflict) {
				t.Errorf("BindDir = %v, want %v", err, fault.Conflict)
			}
			if after, _, err := m.MountAt(target); err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("the mount is %+v, %v, want %+v as before", after, err, before)
			}
			if err := m.BindDir(t.Context(), staging, target, tc.has); err != nil {
				t.Errorf("BindDir as it is = %v, want no error", err)
			}
			if err := errors.Join(m.UnmountAll(t.Context(), target), m.RemoveTarget(target)); err != nil {
				t.Fatal(err)
			}
		})
	}
	node, readOnly := filepath.Join(dir, "node"), filepath.Join(dir, "node-ro")
	if err := errors.Join(m.BindDevice(t.Context(), dev, node, false), m.BindDevice(t.Context(), dev, readOnly, true)); err != nil {
		t.Fatal(err)
	}
	if err := m.BindDevice(t.Context(), dev, node, true); !errors.Is(err, fault.Conflict) {
		t.Errorf("BindDevice read-only onto a writable one = %v, want %v", err, fault.Conflict)
	}
	if err := m.BindDevice(t.Context(), dev, readOnly, false); !errors.Is(err, fault.Conflict) {
		t.Errorf("BindDevice writable onto a read-only one = %v, want %v", err, fault.Conflict)
	}
	takeDown(t, m, dev, node, readOnly, staging)
}
