package host

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestPrograms(t *testing.T) {
	r := Programs{}
	t.Run("a code is no error, and both outputs are kept", func(t *testing.T) {
		out, err := r.Run(t.Context(), Command{Name: "ls", Args: []string{"/", "/does-not-exist"}})
		if err != nil || out.ExitCode != 2 || !strings.Contains(out.Tail(), "/does-not-exist") || len(out.Stdout) == 0 {
			t.Errorf("Run = %+v, %v, want code 2 and a message", out, err)
		}
	})
	t.Run("files and standard input arrive", func(t *testing.T) {
		f, err := os.Open("run.go")
		must(t, err)
		defer func() { _ = f.Close() }()
		out, err := r.Run(t.Context(), Command{Name: "cat", Args: []string{"-", ChildFile}, Files: []*os.File{f}, Stdin: strings.NewReader("secret\n")})
		if err != nil || !strings.HasPrefix(string(out.Stdout), "secret\npackage host") {
			t.Errorf("Run = %q, %v", out.Stdout, err)
		}
	})
	t.Run("a missing program says so", func(t *testing.T) {
		_, err := r.Run(t.Context(), Command{Name: "no-such-program"})
		if !errors.Is(err, fault.Precondition) || !strings.Contains(err.Error(), "not installed") {
			t.Errorf("Run = %v, want %v", err, fault.Precondition)
		}
	})
	t.Run("a context that ends kills it", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := r.Run(ctx, Command{Name: "sleep", Args: []string{"60"}})
		if !errors.Is(err, fault.Unavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run = %v, want %v", err, context.DeadlineExceeded)
		}
	})
	t.Run("one that is bounded gets no more memory", func(t *testing.T) {
		for bounded, code := range map[bool]int{true: 1, false: 0} {
			out, err := Programs{Memory: 10 << 20}.Run(t.Context(), Command{
				Name: "tail", Args: []string{"-c", "15000000"}, Stdin: io.LimitReader(zero{}, 15_000_000), Bounded: bounded,
			})
			if err != nil || out.ExitCode != code {
				t.Errorf("Run, bounded: %v, ended with %d, %v, %s; want %d", bounded, out.ExitCode, err, out.Stderr, code)
			}
		}
	})
	t.Run("endless output is cut", func(t *testing.T) {
		out, err := r.Run(t.Context(), Command{Name: "seq", Args: []string{"200000"}})
		if err != nil || len(out.Stdout) > tailBytes || !strings.HasSuffix(string(out.Stdout), "\n200000\n") || !strings.HasSuffix(out.Tail(), "200000") {
			t.Errorf("Run kept %d bytes, %v; want the last %d", len(out.Stdout), err, tailBytes)
		}
	})
}

// zero reads as zeros.
type zero struct{}

func (zero) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestTail(t *testing.T) {
	for name, tc := range map[string]struct {
		stdout, stderr, want string
	}{
		"nothing":                             {"", "", ""},
		"few lines":                           {"made\n", "\n warning \nit failed", "made; warning; it failed"},
		"a usage after the reason (mkfs.xfs)": {"", "must be larger than 300MB.\nUsage:\n-b\n-d\n-f\nsize\ndevice\n", "must be larger than 300MB.; -d; -f; size; device"},
		"a reason at the end":                 {"1\n2\n3\n4\n5\n6\n", "no space\n", "1; 4; 5; 6; no space"},
	} {
		if got := (Output{Stdout: []byte(tc.stdout), Stderr: []byte(tc.stderr)}).Tail(); got != tc.want {
			t.Errorf("%s: Tail() = %q, want %q", name, got, tc.want)
		}
	}
}

// runnerHelper makes the test binary a node program that runs this shell script and waits for it.
const runnerHelper = "MOUNTER_RUNNER_SCRIPT"

// TestRunScriptAsNode is a helper: TestNoCommandOutlivesAKilledProgram runs it in a child process.
func TestRunScriptAsNode(t *testing.T) {
	if script := os.Getenv(runnerHelper); script != "" {
		_, err := Programs{}.Run(t.Context(), Command{Name: "sh", Args: []string{"-c", script}})
		t.Fatalf("the script ended: %v", err)
	}
}

// TestNoCommandOutlivesAKilledProgram: a mkfs, fsck or mount that continued after its node program was killed could reach a device
// that the next node program has staged.
func TestNoCommandOutlivesAKilledProgram(t *testing.T) {
	read, write, err := os.Pipe()
	must(t, err)
	defer func() { _ = read.Close() }()
	node := exec.Command(os.Args[0], "-test.run=^TestRunScriptAsNode$")
	fifo := "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(write.Fd()))
	// Only the command has the pipe open once this process has closed it: the command's end is the EOF here.
	node.Env = append(os.Environ(), runnerHelper+"=exec 9>"+fifo+"; echo runs >&9; exec sleep 600")
	must(t, node.Start())
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil || line != "runs\n" {
		t.Fatalf("the command said %q, %v", line, err)
	}
	must(t, errors.Join(write.Close(), node.Process.Kill()))
	_ = node.Wait()
	must(t, read.SetReadDeadline(time.Now().Add(5*time.Second)))
	if n, err := read.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the node program was killed: read %d, %v, want EOF: the command still runs", n, err)
	}
}
