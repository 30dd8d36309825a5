package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/doctor"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// The patience of doctor, which a person waits for. The fallback of the metadata service follows its own timeout.
const (
	doctorMetadata = fallbackTimeout + 2*time.Second
	doctorVersion  = 5 * time.Second
)

const doctorUsage = `Usage: cloudblock-node doctor FLAGS-OF-THE-PROGRAM [--output json]

Says what would keep the program with these flags from its work here, and what to do. It changes nothing.`

// runDoctor is the sub-command "doctor": with the flags of the program it says what is wrong with this machine, or with the
// container that it runs in.
func runDoctor(ctx context.Context, args []string, environ driver.Environment, stdout io.Writer) error {
	cfg, output, err := parseDoctor(args, environ, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	return examine(ctx, cfg, host{root: "/", path: environ.Get("PATH")}).Print(stdout, output)
}

func parseDoctor(args []string, environ driver.Environment, out io.Writer) (cfg config, output string, err error) {
	fs := cfg.flags()
	settings := driver.SettingsOf(fs, controllerSettings...) // not the flag of the sub-command alone
	own := func(fs *flag.FlagSet) { fs.StringVar(&output, "output", "table", "table or json") }
	err = driver.ParseCommand(fs, own, args, out, doctorUsage)
	if errors.Is(err, flag.ErrHelp) {
		return cfg, output, err
	}
	if err := errors.Join(err, settings.Read(fs, environ), cfg.validate(), doctor.CheckOutput(output)); err != nil {
		return cfg, output, fmt.Errorf("%w:\n%w", driver.ErrCommandLine, err)
	}
	return cfg, output, nil
}

// host is the machine that is examined.
type host struct {
	doctor.Report

	// root is its root folder, path the PATH of its programs.
	root, path string
}

func examine(ctx context.Context, cfg config, h host) doctor.Report {
	h.kernel()
	h.tools(ctx)
	h.kubelet(cfg.kubeletDir)
	h.selinux()
	if cfg.disks != nil {
		disks := cfg.newDisks(h.root)
		h.metadata(ctx, cfg, disks)
		h.links(ctx, cfg, disks)
		return h.Report
	}
	h.loops()
	for _, p := range cfg.Pools() {
		h.Pools(ctx, pool.Config{Name: p.Name, Dir: p.Dir, Node: cfg.NodeID, IDFile: cfg.PoolIDFile(p.Name)})
	}
	return h.Report
}

func (h *host) kernel() {
	release, err := kernelRelease(h.root)
	if err == nil {
		err = checkKernel(release)
	}
	if err != nil {
		h.Wrong("kernel", err, "install a newer kernel, or keep the node program off this machine (nodeSelector)")
		return
	}
	h.OK("kernel", "Linux %s", release)
}

func (h *host) tools(ctx context.Context) {
	for _, t := range tools {
		missing := missingPrograms(h.path, t.programs)
		if len(missing) == 0 {
			h.OK("tools", "%s: %s", t.use, h.version(ctx, t.programs[0], t.version))
			continue
		}
		err := fmt.Errorf("not on PATH: %s: %w", strings.Join(missing, ", "), fault.ProgramMissing)
		if t.required {
			h.Wrong("tools", err, "install them; no volume can be served without them")
		} else {
			h.Warn("tools", err, "install them if a StorageClass uses "+t.use+"; the image of the node program has them")
		}
	}
}

// version returns what a program says of itself.
func (h *host) version(ctx context.Context, program, option string) string {
	ctx, cancel := context.WithTimeout(ctx, doctorVersion)
	defer cancel()
	out, err := exec.CommandContext(ctx, onPath(h.path, program), option).CombinedOutput()
	line, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n"))
	if err != nil || len(line) == 0 {
		return program + " of an unknown version"
	}
	return string(line)
}

func (h *host) kubelet(dir string) {
	if _, err := os.Stat(dir); err != nil {
		h.Wrong("kubelet", err, "set the kubelet's folder (--kubelet-dir, component kubelet-dir), and mount it into the container")
		return
	}
	if err := mount.CheckPropagation(dir); err != nil {
		h.Wrong("propagation", err, "mount the kubelet's folder with mountPropagation: Bidirectional, as the manifests do")
		return
	}
	h.OK("propagation", "mounts below %s reach the kubelet", dir)
}

// selinux finds a node program that SELinux keeps from the disks and folders of the node. The program's own label tells, since
// an ordinary container is not let see whether SELinux is enforcing. Labels of other security modules have no type.
func (h *host) selinux() {
	data, _ := os.ReadFile(filepath.Join(h.root, "proc/self/attr/current")) // an error without a security module
	label := strings.Trim(string(data), " \n\x00")
	parts := strings.Split(label, ":")
	if len(parts) < 3 || !strings.HasSuffix(parts[2], "_t") {
		h.OK("selinux", "not in use")
		return
	}
	enforce, err := os.ReadFile(filepath.Join(h.root, "sys/fs/selinux/enforce"))
	switch {
	case err == nil && strings.TrimSpace(string(enforce)) != "1":
		h.OK("selinux", "not enforcing")
	case slices.Contains([]string{"spc_t", "unconfined_t", "unconfined_service_t"}, parts[2]):
		h.OK("selinux", "this program runs as %s", label)
	default:
		h.Wrong("selinux", fmt.Errorf("SELinux is in use, and this program runs as %s", label),
			"add the component selinux, which runs the node's pod as spc_t")
	}
}

func (h *host) metadata(ctx context.Context, cfg config, disks *device.ByID) {
	ctx, cancel := context.WithTimeout(ctx, doctorMetadata)
	defer cancel()
	info, _, err := identify(ctx, cfg, disks.Foreign, zap.NewNop())
	if err != nil {
		h.Wrong("metadata", err, "let the pod reach 169.254.169.254 (component host-network), or set ZONE (--zone) where the cloud has a fallback")
		return
	}
	h.OK("metadata", "this machine is %s in %s, and takes %d volumes", info.ID, info.Zone, info.MaxVolumes)
}

func (h *host) links(ctx context.Context, cfg config, disks *device.ByID) {
	right, err := disks.CheckLinks(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		h.OK("links", "there is no %s yet; udev makes it with the first disk that has a name", cfg.deviceDir)
	case err != nil:
		h.Warn("links", err, "let udev make the links anew (udevadm trigger --subsystem-match=block), or remove the stale one; mount the host's /dev at /dev")
	default:
		h.OK("links", "%d links of volumes in %s lead to their disks", right, cfg.deviceDir)
	}
}

// loops finds a machine on which volumes cannot become loop devices.
func (h *host) loops() {
	_, err := os.Stat(filepath.Join(h.root, "dev/loop-control"))
	if err == nil {
		err = device.CheckSys(filepath.Join(h.root, "sys/block"))
	}
	if err != nil {
		h.Wrong("loop", err, "load the module (modprobe loop), and mount the host's /dev and /sys into the container, as the manifests do")
		return
	}
	h.OK("loop", "there are loop devices, and their settings can be written")
}
