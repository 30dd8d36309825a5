package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Command is one program to run.
type Command struct {
	// Name is looked up on PATH.
	Name string
	Args []string
	// Files become descriptors 3, 4, ... of the program.
	Files []*os.File
	// Stdin may be nil.
	Stdin io.Reader
	// Bounded limits the program's memory to that of Programs.
	Bounded bool
}

// Output is the output of a program that exited by itself.
type Output struct {
	// Stdout and Stderr are cut to their last 64 KiB.
	Stdout, Stderr []byte
	ExitCode       int
}

// Tail returns the first and the last few lines of the output, on one line, for an error message: mkfs.xfs prints its usage after the
// reason.
func (o Output) Tail() string {
	const most = 5
	var lines []string
	for line := range strings.Lines(string(o.Stdout) + "\n" + string(o.Stderr)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	if cut := len(lines) - most; cut > 0 {
		lines = append(lines[:1], lines[cut+1:]...)
	}
	return strings.Join(lines, "; ")
}

// Runner runs programs. An exit code other than 0 is not an error: callers know the exit codes of their programs. An error means
// that the program did not run until it exited by itself.
type Runner interface {
	Run(ctx context.Context, cmd Command) (Output, error)
}

// ChildFile is the path of the first of its Command.Files in a program.
const ChildFile = "/proc/self/fd/3"

// Programs runs real programs.
type Programs struct {
	// Memory is the limit of a Bounded program in bytes; 0: none.
	Memory int64
}

// Run starts the program and waits for it; when ctx ends, it kills the program. The kernel kills it too when this process dies in
// any way, so that it does not work on a device or mount it while the next node program runs.
func (p Programs) Run(ctx context.Context, c Command) (Output, error) {
	cmd := exec.CommandContext(ctx, c.Name, c.Args...)
	var stdout, stderr tail
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = c.Stdin, &stdout, &stderr, c.Files
	// Messages are parsed and shown; they must not depend on the node's language. cryptsetup makes the nodes of its mappings
	// itself. Otherwise it would wait for udev on a semaphore, and the answer of the node's udev never reaches a container with its
	// own IPC namespace.
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DM_DISABLE_UDEV=1")
	// The kernel watches the thread that started the program, not the process; without the lock the runtime may end that thread
	// while the program runs.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Start()
	if err == nil {
		if c.Bounded && p.Memory > 0 {
			limit := unix.Rlimit{Cur: uint64(p.Memory), Max: uint64(p.Memory)}
			_ = unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_AS, &limit, nil) // it may have ended
		}
		err = cmd.Wait()
	}
	out := Output{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: cmd.ProcessState.ExitCode()}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out, nil
	case errors.As(err, &exit) && exit.Exited():
		return out, nil
	case ctx.Err() != nil:
		return out, fmt.Errorf("run %s: %w: %w", c.Name, fault.Unavailable, ctx.Err())
	case errors.Is(err, exec.ErrNotFound):
		return out, fmt.Errorf("run %s: %w: the program is not installed: %w", c.Name, fault.ProgramMissing, err)
	}
	return out, fmt.Errorf("run %s: %w: %w: %s", c.Name, fault.Unavailable, err, out.Tail())
}

// tail keeps the last bytes that were written to it, so that a program with much output cannot fill the memory.
type tail struct{ buf bytes.Buffer }

const tailBytes = 64 << 10

// Write keeps at most the last tailBytes bytes.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	p = p[max(0, n-tailBytes):]
	if over := t.buf.Len() + len(p) - tailBytes; over > 0 {
		t.buf.Next(over)
	}
	t.buf.Write(p)
	return n, nil
}

// Bytes returns the kept bytes.
func (t *tail) Bytes() []byte { return t.buf.Bytes() }
