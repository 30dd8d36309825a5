//go:build vm

package luks_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cloudblock-csi/cloudblock-csi/test/vm"
)

const (
	poolFlag = "--local-pool=/var/lib/cloudblock-csi/pool"
	nodeFlag = "--node-id=node-a"
)

// localController starts the controller program of `local` in the guest. It comes there as a disk.
func localController(t *testing.T) csi.ControllerClient {
	t.Helper()
	file := filepath.Join(t.TempDir(), "controller")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "../../../../cmd/controller")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, text)
	}
	program, err := os.Stat(file)
	check(t, err)
	check(t, os.Truncate(file, (program.Size()+mib-1)/mib*mib))
	disk := &vm.Disk{Cloud: vm.DigitalOcean, Name: "controller", File: file}
	check(t, guest.Plug(t.Context(), disk))
	_, err = guest.WaitForLink(t.Context(), disk)
	check(t, err)
	const socket = vm.KubeletDir + "/plugins/local-controller.sock"
	_, err = guest.Run(t.Context(), fmt.Sprintf(`set -e
		head -c %d /dev/disk/by-id/%s >/usr/local/bin/cloudblock-controller
		chmod +x /usr/local/bin/cloudblock-controller; mkdir -p /var/lib/cloudblock-csi %s/plugins
		setsid cloudblock-controller --cloud=local --endpoint=unix://%s %s %s >/run/controller.log 2>&1 </dev/null &
		echo $! >/run/controller.pid`, program.Size(), disk.Link(), vm.KubeletDir, socket, poolFlag, nodeFlag))
	check(t, err)
	check(t, guest.Unplug(t.Context(), disk))
	conn, err := grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) { return guest.Dial(ctx, path) }))
	check(t, err)
	t.Cleanup(func() {
		log, _ := guest.Run(context.Background(), "kill $(cat /run/controller.pid); cat /run/controller.log")
		if t.Failed() {
			t.Logf("the controller's log:\n%s", log)
		}
		_ = conn.Close()
	})
	return csi.NewControllerClient(conn)
}

// TestLocal: a volume of a pool is encrypted, grows and comes back like a cloud's.
func TestLocal(t *testing.T) {
	quickKeys(t)
	controller := localController(t)
	n := node(t, "local", poolFlag, nodeFlag)
	v := &volume{Node: n, t: t, id: "local", secrets: map[string]string{"luksKey": secret}}
	v.capability = &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
	}
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
	if loops := v.run("losetup -a"); loops != "" {
		t.Errorf("left in the machine: %s", loops)
	}
	v.ok(v.stage, v.publish)
	if got := v.run("cat %s/data", v.target); got != clear {
		t.Errorf("the volume holds %q, want %q", got, clear)
	}
	v.ok(v.unpublish, v.unstage)
	v.free()
	_, err = controller.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.id})
	check(t, err)
}
