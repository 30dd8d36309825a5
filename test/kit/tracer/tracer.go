// Package tracer runs a program under ptrace and kills it at exactly one of its system calls, so that
// a test can cut a program between any two changes that it makes. Only tests import it.
package tracer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Call is a system call that a traced thread is about to make.
type Call struct {
	Number uint64
	Args   [6]uint64
	thread int
}

// Memory returns the bytes that an argument points to, or as many of them as there are.
func (c Call) Memory(arg, length int) []byte {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", c.thread))
	if err != nil {
		return nil
	}
	defer mem.Close()
	buf := make([]byte, length)
	n, _ := mem.ReadAt(buf, int64(c.Args[arg]))
	return buf[:n]
}

// Path returns the string that an argument points to.
func (c Call) Path(arg int) string {
	path, _, _ := bytes.Cut(c.Memory(arg, unix.PathMax), []byte{0})
	return string(path)
}

// File returns the path of the open file that an argument is the descriptor of.
func (c Call) File(arg int) string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.thread, int32(c.Args[arg])))
	return path
}

// The ioctls that change a file: FICLONE, FICLONERANGE and FS_IOC_SETFLAGS.
var changingIoctls = map[uint64]bool{0x40049409: true, 0x4020940d: true, 0x40086602: true}

// ChangesBelow returns a filter for the calls that change what is below a folder.
func ChangesBelow(dir string) func(c Call) bool {
	return func(c Call) bool {
		below := func(path string) bool { return strings.HasPrefix(path, dir) }
		switch c.Number {
		case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FCHMOD:
			return below(c.File(0))
		case unix.SYS_COPY_FILE_RANGE:
			return below(c.File(2))
		case unix.SYS_IOCTL:
			return changingIoctls[c.Args[1]] && below(c.File(0))
		case unix.SYS_OPENAT:
			return c.Args[2]&(unix.O_CREAT|unix.O_TRUNC) != 0 && below(c.Path(1))
		case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT, unix.SYS_MKDIRAT, unix.SYS_FCHMODAT, unix.SYS_LINKAT:
			return below(c.Path(1))
		}
		return false
	}
}

// Result is how a traced program ended.
type Result struct {
	// Calls is how many calls the filter let through.
	Calls int
	// Killed: it was killed at the wanted call. Otherwise Code is its exit code.
	Killed bool
	Code   int
}

// Run runs a command, which calls Narrow first, and kills it with SIGKILL as it enters the at-th call
// that the filter lets through; 0 means never. The command's outputs must be files.
func Run(cmd *exec.Cmd, at int, filter func(c Call) bool) (Result, error) {
	// ptrace ties the tracer to its thread, and so does the way that it waits.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return Result{}, err
	}
	defer func() { _ = cmd.Process.Release() }()
	pid := cmd.Process.Pid
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil {
		return Result{}, fmt.Errorf("wait for the start of %s: %w", cmd.Path, err)
	}
	err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESECCOMP|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACEFORK|
		unix.PTRACE_O_TRACEVFORK|unix.PTRACE_O_EXITKILL)
	if err == nil {
		err = unix.PtraceCont(pid, 0)
	}
	if err != nil {
		return Result{}, errors.Join(fmt.Errorf("trace %s: %w", cmd.Path, err), cmd.Process.Kill())
	}
	return follow(pid, at, filter)
}

// follow lets the threads run from stop to stop.
func follow(pid, at int, filter func(c Call) bool) (r Result, err error) {
	for {
		var status unix.WaitStatus
		// Children of other threads, of other tests perhaps, are none of ours.
		who, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return r, fmt.Errorf("wait for process %d: %w", pid, err)
		case who == pid && status.Exited():
			r.Code = status.ExitStatus()
			return r, nil
		case who == pid && status.Signaled():
			if !r.Killed {
				return r, fmt.Errorf("process %d died of %v", pid, status.Signal())
			}
			return r, nil
		case !status.Stopped():
			continue
		}
		deliver := 0
		switch signal := status.StopSignal(); {
		case signal == unix.SIGTRAP && status.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
			if c, entering := callOf(who); entering && !r.Killed && filter(c) {
				if r.Calls++; r.Calls == at {
					r.Killed = true
					// It is stopped before the call and dies there; the call never happens.
					_ = unix.Kill(pid, unix.SIGKILL)
					continue
				}
			}
		case signal != unix.SIGTRAP && signal != unix.SIGSTOP:
			deliver = int(signal)
		}
		_ = unix.PtraceCont(who, deliver)
	}
}

// callOf returns the call that a stopped thread is entering.
func callOf(thread int) (c Call, entering bool) {
	const getSyscallInfo = 0x420e // PTRACE_GET_SYSCALL_INFO, the same on every architecture
	var info [88]byte
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, getSyscallInfo, uintptr(thread), uintptr(len(info)), uintptr(unsafe.Pointer(&info[0])), 0, 0)
	c.thread, c.Number = thread, binary.NativeEndian.Uint64(info[24:])
	for i := range c.Args {
		c.Args[i] = binary.NativeEndian.Uint64(info[32+8*i:])
	}
	const atFilter = 3 // PTRACE_SYSCALL_INFO_SECCOMP
	return c, errno == 0 && info[0] == atFilter
}
