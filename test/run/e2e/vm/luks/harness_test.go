//go:build vm

package luks_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

var check = expect.NoError

const (
	mib = int64(1) << 20
	// secret is the passphrase of the volumes. Its end shows that nothing is cut off.
	secret = "correct horse battery staple, with more than sixty-four bytes of text in it\n"
	// clear is written to volumes and looked for on disks.
	clear = "this text is on no disk as it is"
)

// guest is the one machine of all tests.
var guest *vm.Guest

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "luks-vm-")
	if err == nil {
		err = boot(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	guest.Kill()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func boot(dir string) error {
	image, err := exec.Command("../../../../kit/vm/image.sh").Output()
	if err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	cfg := vm.Config{
		Image: strings.TrimSpace(string(image)), Init: filepath.Join(dir, "init"), Node: filepath.Join(dir, "node"), Dir: dir,
	}
	for out, pkg := range map[string]string{cfg.Init: "../../../../kit/vm/guest", cfg.Node: "../../../../../cmd/node"} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", pkg, err, text)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	guest, err = vm.Start(ctx, cfg)
	return err
}

// node is the node program of a cloud.
func node(t *testing.T, cloud string, flags ...string) *vm.Node {
	t.Helper()
	n, err := guest.StartNode(t.Context(), cloud, flags...)
	check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		log, _ := n.Log(ctx)
		if strings.Contains(log, secret[:20]) {
			t.Errorf("the log has the passphrase: %s", log)
		}
		if t.Failed() {
			kernel, _ := guest.Run(ctx, "dmesg | tail -20; dmsetup ls; dmsetup table; lsblk; cat /proc/mounts | grep kubelet")
			t.Logf("the node program's log:\n%s\n%s", log, kernel)
		}
		_ = n.Stop(ctx, "TERM")
		_, _ = guest.Run(ctx, "rm -f /run/node-"+cloud+".log")
		_ = n.Close()
	})
	return n
}

// quickKeys makes luksFormat derive the key in a few steps, which in emulation would take up to a minute: for tests that are
// not about the derivation.
func quickKeys(t *testing.T) {
	t.Helper()
	_, err := guest.Run(t.Context(), `cat >/usr/local/bin/cryptsetup <<'END'
#!/bin/bash
args="$*"
exec /usr/sbin/cryptsetup ${args/--pbkdf argon2id --pbkdf-memory 65536 --iter-time 1000/--pbkdf pbkdf2 --pbkdf-force-iterations 1000}
END
		chmod +x /usr/local/bin/cryptsetup`)
	check(t, err)
	t.Cleanup(func() { _, _ = guest.Run(context.Background(), "rm -f /usr/local/bin/cryptsetup") })
}

// volume is an encrypted volume of a cloud and the paths that a kubelet would use for it.
type volume struct {
	*vm.Node
	t               *testing.T
	disk            *vm.Disk
	id              string
	staging, target string
	capability      *csi.VolumeCapability
	context         map[string]string
	secrets         map[string]string
}

var serial int

// attach plugs a new disk in.
func attach(t *testing.T, n *vm.Node, cloud, driver, filesystem string, size int64) *volume {
	t.Helper()
	serial++
	name := fmt.Sprintf("pvc-luks%d", serial)
	if cloud == vm.Yandex {
		name = fmt.Sprintf("epd%017d", serial) // as its ids are
	}
	disk, err := vm.NewDisk(t.TempDir(), cloud, name, size)
	check(t, err)
	v := &volume{
		Node: n, t: t, disk: disk, id: fmt.Sprintf("vol-%d", serial),
		context: map[string]string{driver + "/luks": "true", driver + "/content": "blank", driver + "/device-name": disk.Link()},
		secrets: map[string]string{"luksKey": secret},
	}
	if cloud == vm.Yandex {
		v.context[driver+"/serial"] = disk.Name
	}
	v.staging = fmt.Sprintf("%s/plugins/kubernetes.io/csi/%s/globalmount", vm.KubeletDir, v.id)
	v.target = fmt.Sprintf("%s/pods/%s/mount", vm.KubeletDir, v.id)
	v.capability = programs.Claim{Filesystem: filesystem}.Capability()
	v.run("mkdir -p %s %s", v.staging, filepath.Dir(v.target))
	v.plug()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if guest.Plugged(disk) {
			_ = guest.Unplug(ctx, disk)
		}
	})
	return v
}

func (v *volume) plug() {
	v.t.Helper()
	check(v.t, guest.Plug(v.t.Context(), v.disk))
	_, err := guest.WaitForLink(v.t.Context(), v.disk)
	check(v.t, err)
}

func (v *volume) unplug() {
	v.t.Helper()
	check(v.t, guest.Unplug(v.t.Context(), v.disk))
}

// run runs a script in the guest.
func (v *volume) run(format string, args ...any) string {
	v.t.Helper()
	out, err := guest.Run(v.t.Context(), "set -e\n"+fmt.Sprintf(format, args...))
	check(v.t, err)
	return strings.TrimSpace(out)
}

func (v *volume) stage() error {
	_, err := v.NodeStageVolume(v.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging, VolumeCapability: v.capability, VolumeContext: v.context, Secrets: v.secrets,
	})
	return err
}

func (v *volume) publish() error {
	_, err := v.NodePublishVolume(v.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging, TargetPath: v.target, VolumeCapability: v.capability, VolumeContext: v.context,
	})
	return err
}

func (v *volume) unpublish() error {
	_, err := v.NodeUnpublishVolume(v.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: v.id, TargetPath: v.target})
	return err
}

func (v *volume) unstage() error {
	_, err := v.NodeUnstageVolume(v.t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: v.id, StagingTargetPath: v.staging})
	return err
}

func (v *volume) expand(key string) error {
	req := &csi.NodeExpandVolumeRequest{VolumeId: v.id, VolumePath: v.target, StagingTargetPath: v.staging, VolumeCapability: v.capability}
	if key != "" {
		req.Secrets = map[string]string{"luksKey": key}
	}
	_, err := v.NodeExpandVolume(v.t.Context(), req)
	return err
}

// size is what the volume's statistics have as its size.
func (v *volume) size() int64 {
	v.t.Helper()
	stats, err := v.NodeGetVolumeStats(v.t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v.id, VolumePath: v.target})
	check(v.t, err)
	return stats.GetUsage()[0].GetTotal()
}

// ok does each step twice.
func (v *volume) ok(steps ...func() error) {
	v.t.Helper()
	for _, step := range steps {
		for range 2 {
			check(v.t, step())
		}
	}
}

// wantClear wants the file in a folder of the volume to have what was written to it.
func (v *volume) wantClear(dir string) {
	v.t.Helper()
	if got := v.run("cat %s/data", dir); got != clear {
		v.t.Errorf("the volume holds %q, want %q", got, clear)
	}
}

// free proves that no mapping is left in the machine.
func (v *volume) free() {
	v.t.Helper()
	if left := v.run("ls /sys/class/block | grep ^dm- || true; ls /dev/mapper"); left != "control" {
		v.t.Errorf("left in the machine: %s", left)
	}
}

func (v *volume) kernel() string { return v.run("readlink -f /dev/disk/by-id/%s", v.disk.Link()) }

func wantCode(t *testing.T, what string, err error, want codes.Code, says string) {
	t.Helper()
	if status.Code(err) != want || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("%s = %v, want %v that says %q", what, err, want, says)
	}
	if err != nil && strings.Contains(err.Error(), secret[:20]) {
		t.Errorf("%s: the error has the passphrase: %v", what, err)
	}
}
