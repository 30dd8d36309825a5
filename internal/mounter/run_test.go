package mounter

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestCommands(t *testing.T) {
	r := commands{}
	t.Run("a code is no error, and both outputs are kept", func(t *testing.T) {
		out, err := r.Run(t.Context(), Command{Name: "ls", Args: []string{"/", "/does-not-exist"}})
		if err != nil || out.ExitCode != 2 || !strings.Contains(out.Tail(), "/does-not-exist") || len(out.Stdout) == 0 {
			t.Errorf("Run = %+v, %v, want code 2 and a message", out, err)
		}
	})
	t.Run("files and standard input arrive", func(t *testing.T) {
		f, err := os.Open("run.go")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		out, err := r.Run(t.Context(), Command{Name: "cat", Args: []string{"-", childFile}, Files: []*os.File{f}, Stdin: strings.NewReader("secret\n")})
		if err != nil || !strings.HasPrefix(string(out.Stdout), "secret\npackage mounter") {
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
		_, err := r.Run(ctx, Command{Name: "sleep", Args: []string{"60"}, DieWithParent: true})
		if !errors.Is(err, fault.Unavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run = %v, want %v", err, context.DeadlineExceeded)
		}
	})
	t.Run("endless output is cut", func(t *testing.T) {
		out, err := r.Run(t.Context(), Command{Name: "seq", Args: []string{"200000"}})
		if err != nil || len(out.Stdout) > tailBytes || !strings.HasSuffix(string(out.Stdout), "\n200000\n") || !strings.HasSuffix(out.Tail(), "200000") {
			t.Errorf("Run kept %d bytes, %v; want the last %d", len(out.Stdout), err, tailBytes)
		}
	})
}
