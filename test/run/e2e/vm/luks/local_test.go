//go:build vm

package luks_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

const (
	poolFlag = "--local-pool=/var/lib/cloudblock-csi/pool"
	nodeFlag = "--node-id=node-a"
)

// localController builds the controller program and starts it in the guest for `local`.
func localController(t *testing.T) csi.ControllerClient {
	t.Helper()
	program := filepath.Join(t.TempDir(), "cloudblock-controller")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "../../../../../cmd/controller")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, text)
	}
	_, err := guest.Run(t.Context(), "set -e; truncate -s 512M /var/lib/pool.img; mkfs.ext4 -q /var/lib/pool.img; "+
		"mkdir -p /var/lib/cloudblock-csi/pool; mount -o loop /var/lib/pool.img /var/lib/cloudblock-csi/pool")
	check(t, err)
	c, err := guest.StartController(t.Context(), program, poolFlag, nodeFlag)
	check(t, err)
	t.Cleanup(func() {
		log, err := c.Stop(context.WithoutCancel(t.Context()))
		if t.Failed() {
			t.Logf("the controller's log (%v):\n%s", err, log)
		}
	})
	return c
}

// TestLocal: a volume of a pool is encrypted, grows and comes back like a cloud's.
func TestLocal(t *testing.T) {
	quickKeys(t)
	controller := localController(t)
	n := node(t, "local", poolFlag, nodeFlag)
	v := &volume{Node: n, t: t, id: "local", secrets: map[string]string{"luksKey": secret}}
	v.capability = programs.Claim{Filesystem: "ext4"}.Capability()
	made, err := controller.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "pvc-1", CapacityRange: &csi.CapacityRange{RequiredBytes: 100 * mib}, VolumeCapabilities: []*csi.VolumeCapability{v.capability},
		Parameters: map[string]string{"luks": "true"},
	})
	check(t, err)
	v.id, v.context = made.GetVolume().GetVolumeId(), made.GetVolume().GetVolumeContext()
	v.staging = vm.KubeletDir + "/plugins/kubernetes.io/csi/local/globalmount"
	v.target = vm.KubeletDir + "/pods/local/mount"
	v.run("mkdir -p %s %s", v.staging, filepath.Dir(v.target))
	v.ok(v.stage, v.publish)
	v.run("echo '%s' >%s/data; sync", clear, v.target)
	if found := v.run("grep -rl '%s' /var/lib/cloudblock-csi/pool || true", clear); found != "" {
		t.Errorf("what was written is in %s in the clear", found)
	}
	before := v.size()
	_, err = v.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{
		VolumeId: v.id, VolumePath: v.target, StagingTargetPath: v.staging, VolumeCapability: v.capability,
		CapacityRange: &csi.CapacityRange{RequiredBytes: 200 * mib}, Secrets: v.secrets,
	})
	check(t, err)
	if got := v.size(); got < before+85*mib {
		t.Errorf("the volume has %d bytes after %d, want 100 MiB more", got, before)
	}
	v.ok(v.unpublish, v.unstage)
	v.free()
	if loops := v.run("losetup -a | grep -v /var/lib/pool.img || true"); loops != "" {
		t.Errorf("left in the machine: %s", loops)
	}
	v.ok(v.stage, v.publish)
	v.wantClear(v.target)
	v.ok(v.unpublish, v.unstage)
	v.free()
	_, err = controller.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.id})
	check(t, err)
}
