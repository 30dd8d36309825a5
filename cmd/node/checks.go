package main

import (
	"context"
	"errors"
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
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/node"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// host is the machine and the configuration that the checks examine.
type host struct {
	*config

	// root is the machine's root folder, path is the PATH of its programs.
	root, path string
}

// checks returns the checks of the start and of doctor.
func (h host) checks() []doctor.Check {
	list := []doctor.Check{{Name: "kernel", Find: h.kernel, Refuses: true}}
	for _, t := range tools {
		list = append(list,
			doctor.Check{Name: "tools", Find: func(_ context.Context, r *doctor.Report) { h.missing(r, t) }, Refuses: t.required},
			doctor.Check{Name: "tools", Find: func(ctx context.Context, r *doctor.Report) { h.version(ctx, r, t) },
				DoctorOnly: "it runs the programs", Patience: 5 * time.Second})
	}
	list = append(list,
		doctor.Socket(h.Endpoint),
		doctor.Check{Name: "kubelet", Find: h.kubelet},
		doctor.Check{Name: "propagation", Find: h.propagation, Needs: "kubelet", Unready: true},
		doctor.Check{Name: "selinux", Find: h.selinux})
	if h.cgroupDir != "" {
		list = append(list, doctor.Check{Name: "cgroups", Find: h.cgroups})
	}
	if h.disks == nil {
		pools := h.pools(h.mountTable())
		if slices.ContainsFunc(pools, func(p pool.Config) bool { _, group := p.Group(); return !group }) {
			list = append(list, doctor.Check{Name: "loop", Find: h.loops, DoctorOnly: "/readyz asks it where a pool needs loop devices"})
		}
		return append(list, doctor.Pools(pools))
	}
	return append(list,
		doctor.Check{Name: "metadata", Find: h.metadata, DoctorOnly: "the start needs the answer, and asks for longer",
			Patience: fallbackTimeout + 2*time.Second}, // the fallback follows fallbackTimeout
		doctor.Check{Name: "links", Find: h.links, DoctorOnly: "disks come and go, and a stage checks the link that it follows"})
}

// runDoctor is the sub-command "doctor".
func runDoctor(ctx context.Context, args []string, environ driver.Environment, stdout io.Writer) error {
	var cfg config
	return doctor.Command{
		Flags: cfg.flags(), Others: controllerSettings, Validate: cfg.validate, Checks: host{&cfg, "/", environ.Get("PATH")}.checks,
	}.Run(ctx, args, environ, stdout)
}

func (h host) kernel(_ context.Context, r *doctor.Report) {
	release, err := os.ReadFile(filepath.Join(h.root, "proc/sys/kernel/osrelease"))
	if err == nil {
		err = checkKernel(strings.TrimSpace(string(release)))
	}
	r.Result("kernel", "Linux "+strings.TrimSpace(string(release)), err, "install a newer kernel, or keep the node program off this machine (nodeSelector)")
}

// oldestKernel is the first Linux with mount_setattr; open_tree and move_mount are older. A publish needs all three.
var oldestKernel = [2]int{5, 12}

// checkKernel returns an error for a kernel on which every publish would fail, so that the program ends before the kubelet can
// register it.
func checkKernel(release string) error {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("kernel release %q: not of the form 5.12", release)
	}
	if major < oldestKernel[0] || major == oldestKernel[0] && minor < oldestKernel[1] {
		return fmt.Errorf("kernel %s: volumes are published with mount_setattr, which needs Linux %d.%d or newer", release, oldestKernel[0], oldestKernel[1])
	}
	return nil
}

// tool is a set of programs that the node runs.
type tool struct {
	use      string
	programs []string
	// required: without them no volume can be served. Others may be missing if no class uses them.
	required bool
	// version is the option with which the first program prints its version.
	version string
}

var tools = []tool{
	{use: "everything", required: true, programs: []string{"mount", "umount", "blkid"}, version: "--version"},
	{use: "ext4", programs: []string{"mkfs.ext4", "e2fsck"}, version: "-V"},
	{use: "xfs", programs: []string{"mkfs.xfs", "xfs_growfs", "xfs_repair"}, version: "-V"},
	{use: "LUKS", programs: []string{"cryptsetup", "dmsetup"}, version: "--version"},
}

// missing reports missing programs before the first stage needs them.
func (h host) missing(r *doctor.Report, t tool) {
	missing := slices.DeleteFunc(slices.Clone(t.programs), func(p string) bool { return onPath(h.path, p) != "" })
	err := fmt.Errorf("not on PATH: %s: %w", strings.Join(missing, ", "), fault.ProgramMissing)
	switch {
	case len(missing) == 0: // version reports that
	case t.required:
		r.Wrong("tools", err, "install them; no volume can be served without them")
	default:
		r.Warn("tools", err, "install them if a StorageClass uses "+t.use+"; the image of the node program has them")
	}
}

// version reports the version that the first program prints.
func (h host) version(ctx context.Context, r *doctor.Report, t tool) {
	first := onPath(h.path, t.programs[0])
	if first == "" {
		return
	}
	out, err := exec.CommandContext(ctx, first, t.version).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil || line == "" {
		line = t.programs[0] + " of an unknown version"
	}
	r.OK("tools", "%s: %s", t.use, line)
}

// onPath returns the file of a program on a PATH, or "".
func onPath(path, program string) string {
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, program)
		info, err := os.Stat(file)
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return file
		}
	}
	return ""
}

// mountTable returns the path of the machine's mount table.
func (h host) mountTable() string { return filepath.Join(h.root, "proc/self/mountinfo") }

func (h host) kubelet(_ context.Context, r *doctor.Report) {
	_, err := os.Stat(h.kubeletDir)
	r.Result("kubelet", "there is the folder "+h.kubeletDir, err,
		"set the kubelet's folder (--kubelet-dir, component kubelet-dir), and mount it into the container")
}

func (h host) propagation(_ context.Context, r *doctor.Report) {
	r.Result("propagation", "mounts below "+h.kubeletDir+" reach the kubelet", mount.CheckPropagation(h.mountTable(), h.kubeletDir),
		"mount the kubelet's folder with mountPropagation: Bidirectional, as the manifests do")
}

// selinux reports whether SELinux denies this program access to the disks and folders of the node. It decides by the program's own
// label, because an ordinary container cannot read whether SELinux is enforcing. Labels of other security modules have no type.
func (h host) selinux(_ context.Context, r *doctor.Report) {
	data, _ := os.ReadFile(filepath.Join(h.root, "proc/self/attr/current")) // an error without a security module
	label := strings.Trim(string(data), " \n\x00")
	parts := strings.Split(label, ":")
	if len(parts) < 3 || !strings.HasSuffix(parts[2], "_t") {
		r.OK("selinux", "not in use")
		return
	}
	enforce, err := os.ReadFile(filepath.Join(h.root, "sys/fs/selinux/enforce"))
	switch {
	case err == nil && strings.TrimSpace(string(enforce)) != "1":
		r.OK("selinux", "not enforcing")
	case slices.Contains([]string{"spc_t", "unconfined_t", "unconfined_service_t"}, parts[2]):
		r.OK("selinux", "this program runs as %s", label)
	default:
		r.Wrong("selinux", fmt.Errorf("SELinux is in use, and this program runs as %s", label),
			"add the component selinux, which runs the node's pod as spc_t")
	}
}

// cgroups reports whether limits of I/O can be set.
func (h host) cgroups(_ context.Context, r *doctor.Report) {
	r.Result("cgroups", "limits of I/O can be set in "+h.cgroupDir, node.CheckIOLimits(filepath.Join(h.root, h.cgroupDir)),
		"boot the machine with cgroup v2 (systemd.unified_cgroup_hierarchy=1) and mount its /sys/fs/cgroup writable, or send pods with such volumes elsewhere")
}

// loops reports whether volumes can become loop devices on this machine.
func (h host) loops(_ context.Context, r *doctor.Report) {
	_, err := os.Stat(filepath.Join(h.root, "dev/loop-control"))
	if err == nil {
		err = device.CheckSys(filepath.Join(h.root, "sys/block"))
	}
	r.Result("loop", "there are loop devices, and their settings can be written", err,
		"load the module (modprobe loop), and mount the host's /dev and /sys into the container, as the manifests do")
}

func (h host) metadata(ctx context.Context, r *doctor.Report) {
	info, _, err := identify(ctx, *h.config, h.newDisks(h.root).Foreign, zap.NewNop())
	r.Result("metadata", fmt.Sprintf("this machine is %s in %s, and takes %d volumes", info.ID, info.Zone, info.MaxVolumes), err,
		"let the pod reach 169.254.169.254 (component host-network), or set ZONE (--zone) where the cloud has a fallback")
}

func (h host) links(ctx context.Context, r *doctor.Report) {
	right, err := h.newDisks(h.root).CheckLinks(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.OK("links", "there is no %s yet; udev makes it with the first disk that has a name", h.deviceDir)
	case err != nil:
		r.Warn("links", err, "let udev make the links again (udevadm trigger --subsystem-match=block), or remove the stale one; mount the host's /dev at /dev")
	default:
		r.OK("links", "%d links of volumes in %s lead to their disks", right, h.deviceDir)
	}
}
