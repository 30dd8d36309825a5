// The guest program is the first process of the virtual machine: it mounts the root disk, starts udev and
// the network, and then serves the suite on the host.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	rootDisk = "/dev/nvme0n1"
	// self is where this program is in the real root.
	self = "/usr/local/bin/guest"
)

func main() {
	step := boot
	if len(os.Args) > 1 {
		step = serve
	}
	if err := step(); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1) // the kernel prints that its first process has ended
	}
}

// boot is the first process. It never ends: it collects the processes that have lost their parent.
func boot() error {
	for _, step := range []func() error{enterRoot, mountAll, startUdev, startNetwork} {
		if err := step(); err != nil {
			return err
		}
	}
	server := exec.Command(self, "serve")
	server.Env = append(os.Environ(), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")
	server.Stdout, server.Stderr = os.Stdout, os.Stderr
	if err := server.Start(); err != nil {
		return err
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if pid == server.Process.Pid {
			return fmt.Errorf("the server has ended")
		}
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("wait: %w", err)
		}
	}
}

// enterRoot makes the root disk the root of everything, as switch_root does.
func enterRoot() error {
	if err := os.MkdirAll("/dev", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("dev", "/dev", "devtmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	if err := mountRoot(); err != nil {
		return err
	}
	if err := errors.Join(move("/init", "/root"+self), move("/cloudblock-node", "/root/usr/local/bin/cloudblock-node")); err != nil {
		return err
	}
	if err := os.Chdir("/root"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return os.Chdir("/")
}

// mountRoot mounts the root disk, which the kernel finds at its own pace. The suite on the host ends the wait.
func mountRoot() error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Mount(rootDisk, "/root", "ext4", 0, "")
		if err == nil || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENXIO) {
			return err
		}
		<-tick.C
	}
}

func move(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	_ = os.Remove(to) // of the boot before
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Remove(from) // it is in memory
}

func mountAll() error {
	for _, m := range []struct{ kind, path string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"devpts", "/dev/pts"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"},
	} {
		if err := os.MkdirAll(m.path, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.path, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.path, err)
		}
	}
	// As systemd does: the kubelet's folder must propagate mounts.
	return unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, "")
}

func startUdev() error {
	if err := os.MkdirAll("/run/udev", 0o755); err != nil {
		return err
	}
	return run(
		"/lib/systemd/systemd-udevd --daemon",
		"modprobe -a virtio_pci virtio_blk virtio_scsi virtio_net virtio_rng sd_mod loop dm_mod",
		"udevadm trigger --action=add --subsystem-match=block", // every device takes 20 s more in emulation
		"udevadm settle --timeout=60",
	)
}

func startNetwork() error {
	return run(
		"ip link set lo up", "ip link set eth0 up", "ip address add 10.0.2.15/24 dev eth0",
		"ip address add "+metadataIP+"/32 dev lo",
	)
}

func run(lines ...string) error {
	if err := os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	for _, line := range lines {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return nil
}
