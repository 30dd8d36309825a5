package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

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
			if got := (Mount{Info: mountinfo.Info{Options: tc.mount, VFSOptions: tc.super}}).ReadOnlyByError(); got != tc.want {
				t.Errorf("ReadOnlyByError = %v, want %v", got, tc.want)
			}
		})
	}
}

// A filesystem that does not answer costs one thread however often it is asked. A pipe stands for it: to open one waits for
// a writer.
func TestAFilesystemThatHangsIsAskedOnce(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, unix.Mkfifo(pipe, 0o600))
	m := New(Config{})
	at := Mount{Info: mountinfo.Info{ID: 7, Mountpoint: pipe}}
	asked := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		expect.Reason(t, "Responds", m.Responds(ctx, at), fault.MountDead)
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
	must(t, err)
	must(t, writer.Close())
	sound := Mount{Info: mountinfo.Info{ID: 7, Mountpoint: filepath.Dir(pipe)}}
	expect.Kind(t, "Responds after it has answered", m.Responds(t.Context(), sound), fault.None)
}

// device makes the block device 7:1 of a sysfs with these requests completed and in flight.
func device(t *testing.T, completed, inFlight int) (host.Sysfs, uint64) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "dev/block/7:1"), 0o700))
	count(t, host.Sysfs(dir), completed, inFlight)
	return host.Sysfs(dir), unix.Mkdev(7, 1)
}

func count(t *testing.T, sysfs host.Sysfs, completed, inFlight int) {
	t.Helper()
	text := fmt.Sprintf("%d 0 0 0 0 0 0 0 %d 0 0 0 0 0 0 0 0\n", completed, inFlight)
	must(t, os.WriteFile(filepath.Join(string(sysfs), "dev/block/7:1/stat"), []byte(text), 0o600))
}

// While the device is stalled, Health does not touch the filesystem, which would hang: here to open it waits for a writer.
func TestAStalledDeviceIsNotTouched(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, unix.Mkfifo(pipe, 0o600))
	sysfs, number := device(t, 5, 2)
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{Sysfs: sysfs})
		at := Mount{Info: mountinfo.Info{ID: 7, Mountpoint: pipe, FSType: "ext4"}, Device: number}
		m.Stalls.Watch([]uint64{number})
		time.Sleep(host.StallTime + 5*time.Second)
		found, err := m.Health(t.Context(), at)
		if err != nil || len(found) != 1 || found[0].Severity != Inaccessible || found[0].Reason != ReasonStalled {
			t.Fatalf("Health = %+v, %v, want %s", found, err, ReasonStalled)
		}
		for _, part := range []string{"7:1", "2 requests in flight", "none for 35 s"} {
			if !strings.Contains(found[0].Message, part) {
				t.Errorf("the message %q has no %q", found[0].Message, part)
			}
		}
		if n := hanging(); n != 0 {
			t.Errorf("%d goroutines read the filesystem", n)
		}
	})
}

// A filesystem that does not answer in time is not dead while its device has requests in flight or completes some: that is a slow disk.
func TestASlowDiskIsNoDeadFilesystem(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, unix.Mkfifo(pipe, 0o600))
	sysfs, number := device(t, 5, 2)
	m := New(Config{Sysfs: sysfs})
	at := Mount{Info: mountinfo.Info{ID: 7, Mountpoint: pipe}, Device: number}
	want := func(what string, kind error, reasons int) {
		t.Helper()
		short := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			t.Cleanup(cancel)
			return ctx
		}
		if err := m.Responds(short(), at); !errors.Is(err, kind) {
			t.Errorf("%s: Responds = %v, want %v", what, err, kind)
		}
		if found, err := m.Health(short(), at); err != nil || len(found) != reasons {
			t.Errorf("%s: Health = %+v, %v, want %d reasons", what, found, err, reasons)
		}
	}
	want("with requests in flight", fault.Unavailable, 0)
	count(t, sysfs, 5, 0)
	want("with an idle device", fault.MountDead, 1)
	before, _, err := sysfs.BlockStats(number)
	must(t, err)
	count(t, sysfs, 6, 0)
	if !m.works(number, before) {
		t.Error("a device that has completed a request since does not work")
	}
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	must(t, err)
	must(t, writer.Close())
}

// hanging returns the number of goroutines that read a filesystem.
func hanging() int {
	stacks := make([]byte, 1<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("mount.listOne("))
}

// A call that has ended, as when the kubelet restarts, proves nothing of the filesystem.
func TestAnEndedCallFindsNoDeadMount(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := New(Config{})
	for range 20 { // the answer may come first
		err := m.Responds(ctx, Mount{Info: mountinfo.Info{ID: 7, Mountpoint: t.TempDir()}})
		if err != nil && fault.Of(err) != fault.Unavailable {
			t.Fatalf("Responds = %v, want %v", err, fault.Unavailable)
		}
	}
}

// A volume that is unpublished while it is looked at is not dead: its path is gone by then.
func TestAnUnmountMeanwhileIsNoDeadMount(t *testing.T) {
	m, at := New(Config{}), Mount{Info: mountinfo.Info{ID: 7, Mountpoint: filepath.Join(t.TempDir(), "gone"), FSType: "ext4"}}
	if err := m.Responds(t.Context(), at); fault.Of(err) != fault.Unavailable || errors.Is(err, fault.MountDead) {
		t.Errorf("Responds = %v, want %v", err, fault.Unavailable)
	}
	if found, err := m.Health(t.Context(), at); err != nil || len(found) > 0 {
		t.Errorf("Health = %+v, %v, want nothing", found, err)
	}
}

// After an unpublish that comes in between, the path is a folder of another filesystem, such as the node's own.
func TestTheUsageOfAnotherFilesystemIsNotTheVolumes(t *testing.T) {
	m := New(Config{})
	at := t.TempDir()
	table, err := m.Table()
	must(t, err)
	around, err := table.MountOf(at)
	must(t, err)
	volume := Mount{Info: mountinfo.Info{ID: around.ID, Mountpoint: at}}
	if got, err := m.Stats(t.Context(), volume); err != nil || got.TotalBytes == 0 {
		t.Errorf("Stats of the mount = %+v, %v", got, err)
	}
	volume.ID++
	if got, err := m.Stats(t.Context(), volume); !errors.Is(err, fault.Unavailable) {
		t.Errorf("Stats of a mount that has gone = %+v, %v, want %v", got, err, fault.Unavailable)
	}
}
