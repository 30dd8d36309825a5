//go:build e2e

package mounter_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
)

// The test binary stands in the place of a mkfs and runs the real one under ptrace, so that it can be
// killed at exactly the n-th system call that changes something. These variables tell it.
const (
	killerAt    = "MKFS_KILLER_AT"    // which call to kill it at; 0: never
	killerCount = "MKFS_KILLER_COUNT" // file that gets the number of calls
	killerNode  = "MKFS_KILLER_NODE"  // kill the parent too: the whole node program dies

	helperDevice = "MOUNTER_HELPER_DEVICE" // run as a node that formats this device
	helperFS     = "MOUNTER_HELPER_FILESYSTEM"
	helperDir    = "MOUNTER_HELPER_DIR" // of the killer
	helperAt     = "MOUNTER_HELPER_AT"
)

func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); {
	case strings.HasPrefix(name, "mkfs."), name == "cryptsetup":
		os.Exit(traceMkfs(name, os.Args[1:]))
	case os.Getenv(badDiskDir) != "":
		if err := serveBadDisk(os.Getenv(badDiskDir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case os.Getenv(helperDevice) != "":
		os.Exit(formatAsNode())
	}
	os.Exit(m.Run())
}

// changes says whether a system call may change a disk.
func changes(number uint64) bool {
	switch number {
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_PWRITEV, unix.SYS_PWRITEV2, unix.SYS_FALLOCATE, unix.SYS_FTRUNCATE,
		unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		return true
	}
	return false
}

// traceMkfs runs the real mkfs and returns its exit code.
func traceMkfs(name string, args []string) int {
	runtime.LockOSThread() // ptrace ties the tracer to its thread
	at, err := strconv.Atoi(os.Getenv(killerAt))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "device")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	const children = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK
	count, code := trace(cmd.Process.Pid, children, changes, func(count int) {
		if count != at {
			return
		}
		if os.Getenv(killerNode) != "" {
			_ = unix.Kill(unix.Getppid(), unix.SIGKILL)
			// From here on it is up to the kernel to end us and, with us, mkfs.
			<-time.After(10 * time.Second)
		}
		_ = unix.Kill(cmd.Process.Pid, unix.SIGKILL)
	})
	if code > signaled { // what runs us must see the same
		_ = unix.Kill(unix.Getpid(), unix.Signal(code-signaled))
	}
	if err := os.WriteFile(os.Getenv(killerCount), []byte(strconv.Itoa(count)), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// signaled is added to the number of the signal that a program died of.
const signaled = 128

// trace lets a traced program run, and its children as far as the options say. It counts the calls that counts chooses, and calls
// before as a thread enters one of them.
func trace(pid, options int, counts func(number uint64) bool, before func(count int)) (count, code int) {
	var status unix.WaitStatus
	_, _ = unix.Wait4(pid, &status, unix.WALL, nil)
	_ = unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL|options)
	_ = unix.PtraceSyscall(pid, 0)
	for {
		who, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return count, 1
		case who == pid && status.Exited():
			return count, status.ExitStatus()
		case who == pid && status.Signaled():
			return count, signaled + int(status.Signal())
		case !status.Stopped():
			continue
		}
		deliver := 0
		switch signal := status.StopSignal(); {
		case signal == unix.SIGTRAP|0x80:
			if number, entry := syscallOf(who); entry && counts(number) {
				count++
				before(count)
			}
		case signal != unix.SIGTRAP && signal != unix.SIGSTOP:
			deliver = int(signal)
		}
		_ = unix.PtraceSyscall(who, deliver)
	}
}

// syscallOf returns the number of the call that a traced thread is entering.
func syscallOf(pid int) (number uint64, entry bool) {
	const getSyscallInfo = 0x420e // PTRACE_GET_SYSCALL_INFO, the same on every architecture
	var info [88]byte
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, getSyscallInfo, uintptr(pid), uintptr(len(info)), uintptr(unsafe.Pointer(&info[0])), 0, 0)
	return binary.NativeEndian.Uint64(info[24:]), errno == 0 && info[0] == 1
}

// killer is a Runner with the test binary in the place of every mkfs and of cryptsetup.
type killer struct {
	dir   string // the test binary under the names of the programs
	at    int    // which call to kill the program at; 0: never
	count string // a file that gets the number of calls
}

func newKiller(t *testing.T) *killer {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	noError(t, err)
	for _, name := range []string{"mkfs.ext4", "mkfs.xfs", "cryptsetup"} {
		noError(t, os.Symlink(self, filepath.Join(dir, name)))
	}
	return &killer{dir: dir, count: filepath.Join(dir, "count")}
}

func (k *killer) Run(ctx context.Context, c host.Command) (host.Output, error) {
	program := filepath.Join(k.dir, c.Name)
	if _, err := os.Stat(program); err == nil {
		c.Name, c.Args = "env", append([]string{killerAt + "=" + strconv.Itoa(k.at), killerCount + "=" + k.count, program}, c.Args...)
	}
	return host.Programs{}.Run(ctx, c)
}

// calls returns the number of calls that the last program made.
func (k *killer) calls(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(k.count)
	noError(t, err)
	n, err := strconv.Atoi(string(b))
	noError(t, err)
	return n
}
