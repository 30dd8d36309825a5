//go:build e2e

package digitalocean_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/digitalocean/godo"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// machine is an account one of whose droplets is this machine.
func machine(t *testing.T) (c *emulator.Cloud, api *godo.Client, droplet int, devices string) {
	t.Helper()
	devices = t.TempDir()
	c = emulator.Start(t, emulator.Options{DataDir: t.TempDir()})
	droplet = c.AddDroplet(emulator.Droplet{DeviceDir: devices})
	t.Cleanup(func() {
		for _, v := range c.Violations() {
			if strings.HasPrefix(v.What, "emulator:") {
				t.Errorf("%+v", v)
			}
		}
	})
	return c, client(t, c), droplet, devices
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func detachVolume(t *testing.T, api *godo.Client, volume string, droplet int) {
	t.Helper()
	if _, _, err := api.StorageActions.DetachByDropletID(t.Context(), volume, droplet); err != nil {
		t.Fatal(err)
	}
}

// loopOf returns the loop device that a link leads to.
func loopOf(t *testing.T, link string) string {
	t.Helper()
	loop, err := os.Readlink(link)
	must(t, err)
	return loop
}

func TestAnAttachedVolumeIsADevice(t *testing.T) {
	c, api, droplet, devices := machine(t)
	v := mustCreate(t, api, "pvc-1")
	link := filepath.Join(devices, "scsi-0DO_Volume_pvc-1")
	mustAttach(t, api, v.ID, droplet)
	loop := loopOf(t, link)
	if got := command(t, "blockdev", "--getsize64", link); got != "1073741824" {
		t.Errorf("size = %s, want 1 GiB", got)
	}
	if got := command(t, "losetup", "--noheadings", "--output", "BACK-FILE", loop); filepath.Base(got) != filepath.Base(link) {
		t.Errorf("backing file = %s, want one named %s", got, filepath.Base(link))
	}

	// It grows while it is mounted, a snapshot has what was written, and the data survives detach.
	mountpoint := t.TempDir()
	command(t, "mkfs.ext4", "-q", link)
	command(t, "mount", link, mountpoint)
	mounted := true
	unmount := func() {
		if mounted {
			mounted = false
			mustUnmount(t, mountpoint)
		}
	}
	t.Cleanup(unmount)
	must(t, os.WriteFile(filepath.Join(mountpoint, "file"), []byte("precious"), 0o600))
	command(t, "sync", "-f", filepath.Join(mountpoint, "file"))
	if _, _, err := api.StorageActions.Resize(t.Context(), v.ID, 2, "fra1"); err != nil {
		t.Fatal(err)
	}
	if got := command(t, "blockdev", "--getsize64", link); got != "2147483648" {
		t.Errorf("size after growth = %s, want 2 GiB", got)
	}
	s, _, err := api.Storage.CreateSnapshot(t.Context(), &godo.SnapshotCreateRequest{VolumeID: v.ID, Name: "snap-1"})
	must(t, err)
	unmount()
	detachVolume(t, api, v.ID, droplet)
	if _, err := os.Lstat(link); !os.IsNotExist(err) {
		t.Errorf("link after detach: %v, want none", err)
	}
	if backing, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(loop), "loop/backing_file")); err == nil &&
		strings.Contains(string(backing), v.ID) {
		t.Errorf("%s still has %s after detach", loop, backing)
	}

	copied := mustCreate(t, api, "pvc-2", func(r *godo.VolumeCreateRequest) { r.SnapshotID = s.ID })
	mustAttach(t, api, copied.ID, droplet)
	command(t, "mount", filepath.Join(devices, "scsi-0DO_Volume_pvc-2"), mountpoint)
	mounted = true
	if got, err := os.ReadFile(filepath.Join(mountpoint, "file")); err != nil || string(got) != "precious" {
		t.Errorf("the restored file = %q, %v", got, err)
	}
	unmount()
	detachVolume(t, api, copied.ID, droplet)
	if got := c.Violations(); len(got) != 0 {
		t.Errorf("Violations() = %+v, want none", got)
	}
}

func TestADetachOfAMountedDeviceIsSeenAndTheMachineStaysClean(t *testing.T) {
	c, api, droplet, devices := machine(t)
	v := mustCreate(t, api, "pvc-1")
	link := filepath.Join(devices, "scsi-0DO_Volume_pvc-1")
	mustAttach(t, api, v.ID, droplet)
	loop := loopOf(t, link)
	mountpoint := t.TempDir()
	command(t, "mkfs.ext4", "-q", link)
	command(t, "mount", link, mountpoint)
	mounted := true
	t.Cleanup(func() {
		if mounted {
			mustUnmount(t, mountpoint)
		}
	})

	detachVolume(t, api, v.ID, droplet)
	if now, _ := c.Volume(v.ID); now.DropletID != 0 {
		t.Errorf("volume = %+v, want it free: the cloud pulls the disk all the same", now)
	}
	if got := c.Violations(); len(got) != 1 || got[0].Volume != v.ID {
		t.Errorf("Violations() = %+v, want the detach of a mounted device", got)
	}
	if _, err := os.Lstat(link); !os.IsNotExist(err) {
		t.Errorf("link after detach: %v, want none", err)
	}
	if err := os.WriteFile(filepath.Join(mountpoint, "file"), []byte("x"), 0o600); err != nil {
		t.Errorf("the mount died with the detach: %v", err)
	}

	// Attached again while the old device still lives, it is that device: two would be two caches.
	mustAttach(t, api, v.ID, droplet)
	if again := loopOf(t, link); again != loop {
		t.Errorf("attached again as %s beside %s", again, loop)
	}
	mounted = false
	mustUnmount(t, mountpoint)
	detachVolume(t, api, v.ID, droplet)
	if got := c.Violations(); len(got) != 1 {
		t.Errorf("Violations() = %+v, want no second one", got)
	}
}

func TestADetachOfAnOpenDeviceIsSeen(t *testing.T) {
	c, api, droplet, devices := machine(t)
	v := mustCreate(t, api, "pvc-1")
	mustAttach(t, api, v.ID, droplet)
	f, err := os.Open(filepath.Join(devices, "scsi-0DO_Volume_pvc-1"))
	must(t, err)
	detachVolume(t, api, v.ID, droplet)
	if got := c.Violations(); len(got) != 1 {
		t.Errorf("Violations() = %+v, want the detach of an open device", got)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// mustUnmount unmounts what is mounted at a path.
func mustUnmount(t *testing.T, mountpoint string) {
	t.Helper()
	must(t, mounts.Unmount(mountpoint))
}
