package tracer

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// changing are the system calls that can change a file or a disk, those that Run stops at.
var changing = []uintptr{
	unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_PWRITEV, unix.SYS_PWRITEV2, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE,
	unix.SYS_FCHMOD, unix.SYS_COPY_FILE_RANGE, unix.SYS_IOCTL, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT,
	unix.SYS_MKDIRAT, unix.SYS_FCHMODAT, unix.SYS_LINKAT, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
}

// where the parts of struct seccomp_data are: the call's number, and the lower half of its third argument.
const (
	atNumber = 0
	atFlags  = 16 + 2*8
)

// Narrow makes the kernel stop this program, and whatever it executes, for its tracer at system calls
// that can change something, and at no others, which makes tracing it several times as fast. The program
// that Run runs calls it first of all; without a tracer these calls fail from here on.
func Narrow() error {
	do := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	load, answer := uint16(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS), uint16(unix.BPF_RET|unix.BPF_K)
	jump := func(how uint16, k uintptr, yes, no int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | how | unix.BPF_K, Jt: uint8(yes), Jf: uint8(no), K: uint32(k)}
	}
	// Jumps count from the next instruction. The last four are: the flags of an open, what they say,
	// "go on", and "stop".
	program := []unix.SockFilter{do(load, atNumber)}
	for i, number := range changing {
		program = append(program, jump(unix.BPF_JEQ, number, len(changing)-i+3, 0))
	}
	program = append(program,
		jump(unix.BPF_JEQ, unix.SYS_OPENAT, 0, 2),
		do(load, atFlags),
		jump(unix.BPF_JSET, unix.O_CREAT|unix.O_TRUNC, 1, 0),
		do(answer, unix.SECCOMP_RET_ALLOW),
		do(answer, unix.SECCOMP_RET_TRACE),
	)
	runtime.LockOSThread() // the two calls must be made by one thread
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	list := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// For all threads, those of the runtime too.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&list)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return errors.Join(errors.New("install a filter of system calls"), errno)
	}
	return nil
}
