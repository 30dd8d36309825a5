//go:build e2e

package linode_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/linode/linodego"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// machine is an account one of whose Linodes is this machine.
func machine(t *testing.T) (c *emulator.Cloud, api *linodego.Client, linode int, devices string) {
	t.Helper()
	devices = t.TempDir()
	c = emulator.Start(t, emulator.Options{DataDir: t.TempDir()})
	linode = c.AddLinode(emulator.Linode{DeviceDir: devices})
	t.Cleanup(func() {
		for _, v := range c.Violations() {
			if strings.HasPrefix(v.What, "emulator:") {
				t.Errorf("%+v", v)
			}
		}
	})
	return c, client(t, c), linode, devices
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
	tenGiB    = "10737418240"
	twentyGiB = "21474836480"
)

func TestTheMachineSeesAVolumeAsItWasWhenItCame(t *testing.T) {
	c, api, linode, devices := machine(t)
	ctx := t.Context()
	v := mustCreate(t, api, "pvc-1")
	link := filepath.Join(devices, "scsi-0Linode_Volume_pvc-1")
	mustAttach(t, api, v.ID, linode)
	size := func(when, want, link string) {
		t.Helper()
		if got := command(t, "blockdev", "--getsize64", link); got != want {
			t.Errorf("%s: the device has %s bytes, want %s", when, got, want)
		}
	}
	size("attached", tenGiB, link)
	if loop, err := os.Readlink(link); err != nil {
		t.Fatal(err)
	} else if got := command(t, "losetup", "--noheadings", "--output", "BACK-FILE", loop); filepath.Base(got) != filepath.Base(link) {
		t.Errorf("backing file = %s, want one named %s", got, filepath.Base(link))
	}
	if err := os.WriteFile(link, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := api.ResizeVolume(ctx, v.ID, 20); err != nil {
		t.Fatal(err)
	}
	if now := mustSee(t, api, v.ID); now.Size != 20 || now.Status != linodego.VolumeActive {
		t.Errorf("GetVolume() = %+v, want 20 GiB", now)
	}
	size("resized", tenGiB, link)
	detach := func(id int) {
		t.Helper()
		if err := api.DetachVolume(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	detach(v.ID)
	if _, err := os.Lstat(link); !os.IsNotExist(err) {
		t.Errorf("link after detach: %v, want none", err)
	}
	mustAttach(t, api, v.ID, linode)
	size("attached again", twentyGiB, link)

	// A new label is seen on the next attach as well.
	if _, err := api.UpdateVolume(ctx, v.ID, linodego.VolumeUpdateOptions{Label: "renamed"}); err != nil {
		t.Fatal(err)
	}
	size("renamed", twentyGiB, link)
	detach(v.ID)
	mustAttach(t, api, v.ID, linode)
	size("renamed and attached again", twentyGiB, filepath.Join(devices, "scsi-0Linode_Volume_renamed"))

	copied, err := api.CloneVolume(ctx, v.ID, "pvc-2")
	if err != nil {
		t.Fatal(err)
	}
	mustAttach(t, api, copied.ID, linode)
	link = filepath.Join(devices, "scsi-0Linode_Volume_pvc-2")
	size("cloned", twentyGiB, link)
	if got := command(t, "head", "-c", "8", link); got != "precious" {
		t.Errorf("the clone begins with %q, want the source's data", got)
	}
	detach(v.ID)
	detach(copied.ID)
	if got := c.Violations(); len(got) != 0 {
		t.Errorf("Violations() = %+v, want none", got)
	}
}

func TestADetachOfAMountedDeviceIsSeen(t *testing.T) {
	c, api, linode, devices := machine(t)
	v := mustCreate(t, api, "pvc-1")
	mustAttach(t, api, v.ID, linode)
	link, mountpoint := filepath.Join(devices, "scsi-0Linode_Volume_pvc-1"), t.TempDir()
	command(t, "mkfs.ext4", "-q", link)
	command(t, "mount", link, mountpoint)
	t.Cleanup(func() { mustUnmount(t, mountpoint) })
	if err := api.DetachVolume(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
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
