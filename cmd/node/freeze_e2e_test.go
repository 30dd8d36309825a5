//go:build e2e

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// frozenVolume is a volume that the real node program has staged, and the pool as a controller sees it.
type frozenVolume struct {
	*program
	store   *pool.Pool
	id      pool.ID
	staging string
	client  csi.NodeClient
	kill    func()
}

// stagedVolume starts the program and stages a volume; fs empty means raw block.
func stagedVolume(t *testing.T, fs string) *frozenVolume {
	t.Helper()
	dir := tempDir(t)
	v := &frozenVolume{program: &program{t: t, dir: dir, binary: build(t, dir)}, staging: filepath.Join(dir, "staging")}
	v.client, v.kill = v.start()
	var err error
	v.store, err = pool.Open(t.Context(), pool.Config{Dir: filepath.Join(dir, "pool"), Node: "node-a"})
	must(t, err)
	r, err := v.store.Create(t.Context(), pool.NewVolume{Name: "v", Size: 320 << 20})
	must(t, err)
	v.id = r.ID
	must(t, os.MkdirAll(v.staging, 0o700))
	must(t, v.stage(fs))
	t.Cleanup(func() { // before the unmounting of tempDir, which would wait for the thaw
		if dir, err := os.Open(v.staging); err == nil {
			_ = unix.IoctlSetInt(int(dir.Fd()), fiThaw, 0)
			dir.Close()
		}
	})
	return v
}

func (v *frozenVolume) stage(fs string) error {
	capability := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	if fs != "" {
		capability.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fs}}
	}
	_, err := v.client.NodeStageVolume(v.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: v.store.Handle(v.id).String(), StagingTargetPath: v.staging, VolumeCapability: capability,
	})
	return err
}

const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// What takes milliseconds on an idle machine is done soon on a busy one. A freeze that nobody ends is long.
const (
	soon = 2 * time.Second
	long = 20 * time.Second
)

// frozen asks without writing: a frozen filesystem cannot be frozen again.
func (v *frozenVolume) frozen() bool {
	v.t.Helper()
	dir, err := os.Open(v.staging)
	must(v.t, err)
	defer dir.Close()
	if err = unix.IoctlSetInt(int(dir.Fd()), fiFreeze, 0); errors.Is(err, unix.EBUSY) {
		return true
	}
	must(v.t, err)
	if err = unix.IoctlSetInt(int(dir.Fd()), fiThaw, 0); !errors.Is(err, unix.EINVAL) { // or thawed by a late guard
		must(v.t, err)
	}
	return false
}

// thawed waits until the filesystem is thawed, and returns how long that took.
func (v *frozenVolume) thawed(most time.Duration) time.Duration {
	v.t.Helper()
	begin, tick := time.Now(), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for v.frozen() {
		if time.Since(begin) > most {
			v.t.Fatalf("the filesystem is still frozen after %s", most)
		}
		<-tick.C
	}
	return time.Since(begin)
}

// notes are the files of the protocol that are there.
func (v *frozenVolume) notes() []string {
	v.t.Helper()
	found, err := os.ReadDir(filepath.Join(v.dir, "pool", "freeze"))
	must(v.t, err)
	var names []string
	for _, f := range found {
		names = append(names, f.Name())
	}
	return names
}

// TestFreezeOnRequest: a controller asks, the node program freezes and thaws.
func TestFreezeOnRequest(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fs, func(t *testing.T) {
			v := stagedVolume(t, fs)
			must(t, os.WriteFile(filepath.Join(v.staging, "unsynced"), []byte("written without sync"), 0o600))
			begin := time.Now()
			f, err := v.store.RequestFreeze(t.Context(), v.id, long)
			must(t, err)
			took := time.Since(begin)
			if !v.frozen() {
				t.Error("RequestFreeze returned and nothing is frozen")
			}
			must(t, f.Holds())
			_, err = v.client.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{
				VolumeId: v.store.Handle(v.id).String(), StagingTargetPath: v.staging,
			})
			if err == nil {
				t.Error("unstage of a frozen volume succeeded")
			}
			image, err := os.ReadFile(v.store.ImagePath(v.id))
			must(t, err)
			if !strings.Contains(string(image), "written without sync") {
				t.Error("what was written before the freeze is not in the image")
			}
			must(t, f.Holds())
			f.Release()
			t.Logf("frozen after %s, thawed %s after the release", took.Round(time.Millisecond), v.thawed(soon).Round(time.Millisecond))
			if err := f.Holds(); err == nil {
				t.Error("the freeze holds after its release")
			}
			must(t, os.WriteFile(filepath.Join(v.staging, "later"), nil, 0o600))
			v.gone()
			if left := v.notes(); len(left) > 0 {
				t.Errorf("files left of the protocol: %v", left)
			}
		})
	}
}

// TestFreezeRefused: what cannot be frozen is refused at once, with the reason.
func TestFreezeRefused(t *testing.T) {
	v := stagedVolume(t, "")
	wantRefused := func(what string) {
		t.Helper()
		begin := time.Now()
		f, err := v.store.RequestFreeze(t.Context(), v.id, 5*time.Second)
		if !errors.Is(err, fault.Precondition) || f != nil {
			t.Errorf("RequestFreeze of %s = %v, %v, want %v", what, f, err, fault.Precondition)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the refusal of %s took %s", what, took)
		}
		t.Logf("%s: %v", what, err)
	}
	wantRefused("a raw block volume")
	v.gone()
	wantRefused("a volume that is not staged")
	must(t, v.stage("ext4"))
	command(t, "fsfreeze", "-f", v.staging)
	wantRefused("a volume that somebody else has frozen")
	if !v.frozen() {
		t.Error("what somebody else froze was thawed")
	}
	command(t, "fsfreeze", "-u", v.staging)
	f, err := v.store.RequestFreeze(t.Context(), v.id, long)
	must(t, err)
	f.Release()
	v.thawed(soon)
	v.gone()
}

// TestFrozenVolumeIsAlwaysThawed (failure C11 of the catalogue): whoever dies in the frozen window.
func TestFrozenVolumeIsAlwaysThawed(t *testing.T) {
	v := stagedVolume(t, "ext4")
	freeze := func(d time.Duration) *pool.Freeze {
		t.Helper()
		f, err := v.store.RequestFreeze(t.Context(), v.id, d)
		must(t, err)
		if !v.frozen() {
			t.Fatal("nothing is frozen")
		}
		return f
	}
	t.Run("the controller dies and never takes its request back", func(t *testing.T) {
		f := freeze(time.Second)
		if took := v.thawed(3 * time.Second); took > 2*time.Second {
			t.Errorf("thawed after %s, want one second", took)
		}
		if err := f.Holds(); err == nil {
			t.Error("the freeze holds after its time")
		}
	})
	t.Run("the node program dies: its guard thaws", func(t *testing.T) {
		f := freeze(long)
		v.kill()
		t.Logf("thawed %s after the kill", v.thawed(soon).Round(time.Millisecond))
		if err := f.Holds(); err == nil {
			t.Error("the freeze holds although it was thawed")
		}
		f.Release()
		v.client, v.kill = v.start()
	})
	t.Run("the guard dies: the node program thaws", func(t *testing.T) {
		f := freeze(long)
		killAll(t, childrenOf(t, v.cmd.Process.Pid))
		t.Logf("thawed %s after the kill", v.thawed(soon).Round(time.Millisecond))
		if err := f.Holds(); err == nil {
			t.Error("the freeze holds although it was thawed")
		}
		f.Release()
	})
	t.Run("both die: the next node program thaws", func(t *testing.T) {
		f := freeze(long)
		v.killBoth()
		if !v.frozen() {
			t.Error("nothing is frozen after both died: this test shows nothing")
		}
		f.Release() // the controller gives up, too
		begin := time.Now()
		v.client, v.kill = v.start()
		if v.frozen() {
			t.Error("the restarted program serves before it has thawed")
		}
		t.Logf("thawed and serving %s after the start", time.Since(begin).Round(time.Millisecond))
	})
	t.Run("the program is told to stop", func(t *testing.T) {
		f := freeze(long)
		must(t, v.cmd.Process.Signal(unix.SIGTERM))
		t.Logf("thawed %s after the signal", v.thawed(soon).Round(time.Millisecond))
		if err := f.Holds(); err == nil {
			t.Error("the freeze holds although it was thawed")
		}
		f.Release()
		v.kill()
		v.client, v.kill = v.start()
	})
	f := freeze(long)
	f.Release()
	v.thawed(soon)
	eventually(t, "no file of the protocol is left", func() bool { return len(v.notes()) == 0 })
	v.gone()
}

// TestKilledAroundTheFreeze kills node program and guard together at many moments of a freeze. The next
// program always finds what it must thaw.
func TestKilledAroundTheFreeze(t *testing.T) {
	v := stagedVolume(t, "xfs")
	restart := func(when string) {
		t.Helper()
		v.client, v.kill = v.start()
		if v.frozen() {
			t.Fatalf("killed %s: still frozen after the restart", when)
		}
	}
	begin := time.Now()
	f, err := v.store.RequestFreeze(t.Context(), v.id, long)
	must(t, err)
	took := time.Since(begin) // the moments are before and after that, however busy this machine is
	v.killBoth()
	f.Release()
	if !v.frozen() {
		t.Error("nothing is frozen after both died: this test shows nothing")
	}
	restart("after the freeze")
	left := 0
	for i := range 25 {
		delay := time.Duration(i) * took / 16
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			if f, err := v.store.RequestFreeze(ctx, v.id, long); err == nil {
				f.Release()
			}
		}()
		<-time.After(delay)
		v.killBoth()
		cancel()
		<-asked
		if v.frozen() {
			left++
		}
		restart(delay.String() + " after the request")
	}
	t.Logf("a freeze took %s; %d of 25 kills around it left a frozen filesystem behind, and each was thawed", took, left)
	must(t, os.WriteFile(filepath.Join(v.staging, "works"), nil, 0o600))
	v.gone()
}

// killBoth kills the node program and its guard so that neither sees the other's end, as the end of
// their container does.
func (v *frozenVolume) killBoth() {
	v.t.Helper()
	pid := v.cmd.Process.Pid
	// Not the guard: the kernel wakes a stopped process when its parent dies.
	must(v.t, unix.Kill(pid, unix.SIGSTOP))
	eventually(v.t, "the node program is stopped", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	guards := childrenOf(v.t, pid)
	killAll(v.t, guards)
	for _, guard := range guards {
		eventually(v.t, "the guard is dead", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", guard))
			return err != nil || strings.Contains(string(stat), ") Z ")
		})
	}
	v.kill()
}

// gone unstages the volume.
func (v *frozenVolume) gone() {
	v.t.Helper()
	eventually(v.t, "the volume is unstaged", func() bool { // Aborted while the thaw is being finished
		_, err := v.client.NodeUnstageVolume(v.t.Context(), &csi.NodeUnstageVolumeRequest{
			VolumeId: v.store.Handle(v.id).String(), StagingTargetPath: v.staging,
		})
		return err == nil
	})
}

func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	must(t, err)
	var pids []int
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

func killAll(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
	}
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick, late := time.NewTicker(10*time.Millisecond), time.After(5*time.Second)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("it did not happen: %s", what)
		}
	}
}
