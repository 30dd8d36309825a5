//go:build e2e

package device

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// TestLoopInAnotherProcess is not a test by itself: the tests below start it as the node program
// that opens a volume and is killed.
func TestLoopInAnotherProcess(t *testing.T) {
	dir := os.Getenv("LOOP_TEST_DIR")
	if dir == "" {
		return
	}
	if _, err := rigWith(t, dir, LoopConfig{}).Open(t.Context(), Spec{Volume: os.Getenv("LOOP_TEST_VOLUME")}); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func openAndBeKilled(t *testing.T, r rig, c Spec) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestLoopInAnotherProcess$")
	cmd.Env = append(os.Environ(), "LOOP_TEST_DIR="+r.dir, "LOOP_TEST_VOLUME="+c.Volume)
	out, _ := cmd.CombinedOutput()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the other process ended with %v: %s", cmd.ProcessState, out)
	}
}

func TestVolumeOfAKilledNodeIsFoundAgainAndStaysProtected(t *testing.T) {
	r := newRig(t, t.TempDir())
	c := r.create(t, "a", 16*mib)
	openAndBeKilled(t, r, c)

	wantKind(t, "Delete after the node was killed", r.pool.Delete(t.Context(), idOf(t, c)), fault.Precondition)
	found, err := r.Lookup(t.Context(), c)
	must(t, err)
	d := r.open(t, c)
	if d.Path() != found.Path() {
		t.Errorf("Open = %s, Lookup = %s, want one device", d.Path(), found.Path())
	}
	_, _ = d.Close(), found.Close()
	wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
	wantKind(t, "Delete", r.pool.Delete(t.Context(), idOf(t, c)), fault.None)
}

// Two loop devices of one image would be two caches of one disk.
func TestConcurrentOpensMakeOneDevicePerVolume(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, dir)
	resolvers := []rig{r, newRig(t, dir)}
	var specs []Spec
	for _, name := range []string{"a", "b", "c", "d"} {
		specs = append(specs, r.create(t, name, 16*mib))
	}
	// Somebody else takes loop devices at the same time.
	foreign := filepath.Join(t.TempDir(), "foreign")
	must(t, os.WriteFile(foreign, make([]byte, mib), 0o600))
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20 {
			out, err := exec.Command("losetup", "-f", "--show", foreign).Output()
			if err == nil {
				_ = exec.Command("losetup", "-d", string(out[:len(out)-1])).Run()
			}
		}
	})
	for i := range 4 {
		for _, c := range specs {
			wg.Go(func() {
				d, err := resolvers[i%2].Open(t.Context(), c)
				if err != nil {
					t.Errorf("Open = %v", err)
					return
				}
				_ = d.Close()
			})
		}
	}
	wg.Wait()
	for _, c := range specs {
		if got := attached(t, c); len(got) != 1 {
			t.Errorf("volume %s has the devices %v, want one", c.Volume, got)
		}
		wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
	}
}

// The /dev of a container is a copy made when it started.
func TestMissingDeviceNodesAreMade(t *testing.T) {
	dev, dir := t.TempDir(), t.TempDir()
	r := newRig(t, dir)
	c := r.create(t, "a", 16*mib)
	must(t, unix.Mknod(filepath.Join(dev, "loop-control"), unix.S_IFCHR|0o600, int(unix.Mkdev(10, 237))))
	l := rigWith(t, dir, LoopConfig{DevDir: dev})
	d, err := l.Open(t.Context(), c)
	must(t, err)
	if filepath.Dir(d.Path()) != dev {
		t.Errorf("Open = %s, want a node in %s", d.Path(), dev)
	}
	if err := d.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	_ = d.Close()
	wantKind(t, "Release", l.Release(t.Context(), c), fault.None)

	// A node that leads to another device is no proof of anything.
	// The number is whichever is free: that of before may be another test's by now.
	node := filepath.Join(dev, filepath.Base(losetup(t, "-f", r.pool.ImagePath(idOf(t, c)))))
	if err := os.Remove(node); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	other := unix.Mkdev(7, 0)
	if filepath.Base(node) == "loop0" {
		other = unix.Mkdev(7, 1)
	}
	must(t, unix.Mknod(node, unix.S_IFBLK|0o600, int(other)))
	_, err = l.Lookup(t.Context(), c)
	wantKind(t, "Lookup through a wrong node", err, fault.Unavailable)
}
