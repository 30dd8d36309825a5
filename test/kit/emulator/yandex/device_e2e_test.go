//go:build e2e

package yandex_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// machine is a folder one of whose instances is this machine.
func machine(t *testing.T) (c *emulator.Cloud, a *api, instance, devices string) {
	t.Helper()
	devices = t.TempDir()
	c = emulator.Start(t, emulator.Options{DataDir: t.TempDir()})
	instance = c.AddInstance(emulator.Instance{DeviceDir: devices})
	t.Cleanup(func() {
		for _, v := range c.Violations() {
			if strings.HasPrefix(v.What, "emulator:") {
				t.Errorf("%+v", v)
			}
		}
	})
	return c, clients(dial(t, c)), instance, devices
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

const (
	oneGiB = "1073741824"
	twoGiB = "2147483648"
)

func TestTheMachineSeesTheDisk(t *testing.T) {
	c, a, instance, devices := machine(t)
	ctx := as(t.Context())
	disk := mustCreate(t, a, "pvc-1")
	mustAttach(t, a, disk, instance)
	link := filepath.Join(devices, "virtio-"+disk)
	size := func(when, want, link string) {
		t.Helper()
		if got := command(t, "blockdev", "--getsize64", link); got != want {
			t.Errorf("%s: the device has %s bytes, want %s", when, got, want)
		}
	}
	size("attached", oneGiB, link)
	if loop, err := os.Readlink(link); err != nil {
		t.Fatal(err)
	} else if got := command(t, "losetup", "--noheadings", "--output", "BACK-FILE", loop); filepath.Base(got) != filepath.Base(link) {
		t.Errorf("backing file = %s, want one named %s", got, filepath.Base(link))
	}
	if err := os.WriteFile(link, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, "sync", link)
	snapshot := mustSnapshot(t, a, disk, "snap-1")
	must(t, "Update")(a.disks.Update(ctx, resizeRequest(disk, 2*gib)))
	size("grown while attached", twoGiB, link)
	must(t, "DetachDisk")(a.instances.DetachDisk(ctx, detachRequest(disk, instance)))
	if _, err := os.Lstat(link); !os.IsNotExist(err) {
		t.Errorf("link after detach: %v, want none", err)
	}

	// The older drivers' name for the device.
	ask := attachRequest(disk, instance)
	ask.AttachedDiskSpec.DeviceName = "csi-25174384"
	must(t, "AttachDisk")(a.instances.AttachDisk(ctx, ask))
	size("attached under another name", twoGiB, filepath.Join(devices, "virtio-csi-25174384"))

	restored := mustCreate(t, a, "pvc-2", from(snapshot))
	mustAttach(t, a, restored, instance)
	if got := command(t, "head", "-c", "8", filepath.Join(devices, "virtio-"+restored)); got != "precious" {
		t.Errorf("the restored disk begins with %q, want the source's data", got)
	}
	for _, id := range []string{disk, restored} {
		must(t, "DetachDisk")(a.instances.DetachDisk(ctx, detachRequest(id, instance)))
	}
	if got := c.Violations(); len(got) != 0 {
		t.Errorf("Violations() = %+v, want none", got)
	}
}

func TestADetachOfAMountedDeviceIsSeen(t *testing.T) {
	c, a, instance, devices := machine(t)
	disk := mustCreate(t, a, "pvc-1")
	mustAttach(t, a, disk, instance)
	link, mountpoint := filepath.Join(devices, "virtio-"+disk), t.TempDir()
	command(t, "mkfs.ext4", "-q", link)
	command(t, "mount", link, mountpoint)
	t.Cleanup(func() { mustUnmount(t, mountpoint) })
	must(t, "DetachDisk")(a.instances.DetachDisk(as(t.Context()), detachRequest(disk, instance)))
	if got := c.Violations(); len(got) != 1 || !strings.Contains(got[0].What, "mounted or open") {
		t.Errorf("Violations() = %+v, want that the device was mounted", got)
	}
	if _, err := os.Lstat(link); !os.IsNotExist(err) {
		t.Errorf("link after detach: %v, want none", err)
	}
}

// mustUnmount unmounts what is mounted at a path.
func mustUnmount(t *testing.T, mountpoint string) {
	t.Helper()
	if err := mounts.Unmount(mountpoint); err != nil {
		t.Fatal(err)
	}
}
