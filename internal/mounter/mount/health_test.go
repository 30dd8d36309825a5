package mount

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestReadOnlyByError(t *testing.T) {
	for name, tc := range map[string]struct {
		mount, super string
		want         bool
	}{
		"mounted writable":                      {"rw,relatime", "rw", false},
		"mounted read-only":                     {"ro", "ro", false},
		"bound read-only":                       {"ro", "rw", false},
		"turned read-only":                      {"rw", "ro,seclabel", true},
		"turned read-only, as Linux 6.15 says":  {"rw", "rw,emergency_ro", true},
		"a filesystem whose options begin with": {"rw", "rw,rodir", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := readOnlyByError(Mount{Info: mountinfo.Info{Options: tc.mount, VFSOptions: tc.super}}); got != tc.want {
				t.Errorf("readOnlyByError = %v, want %v", got, tc.want)
			}
		})
	}
}

// A filesystem that does not answer costs one thread however often it is asked. A pipe stands for it: to open one waits for
// a writer.
func TestAFilesystemThatHangsIsAskedOnce(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	m := New(Config{})
	at := Mount{Info: mountinfo.Info{ID: 7, Mountpoint: pipe}}
	asked := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := m.Responds(ctx, at); !errors.Is(err, fault.MountDead) {
			t.Errorf("Responds = %v, want %v", err, fault.MountDead)
		}
	}
	for hanging() == 0 {
		asked()
	}
	for range 3 {
		asked()
	}
	if n := hanging(); n != 1 {
		t.Errorf("%d goroutines read the filesystem, want 1 however often it is asked", n)
	}
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	sound := Mount{Info: mountinfo.Info{ID: 7, Mountpoint: filepath.Dir(pipe)}}
	if err := m.Responds(t.Context(), sound); err != nil {
		t.Errorf("Responds after it has answered = %v", err)
	}
}

// hanging returns the number of goroutines that read a filesystem.
func hanging() int {
	stacks := make([]byte, 1<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("mount.listOne("))
}
