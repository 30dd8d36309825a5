//go:build vm

package vm

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

const (
	cgroupDir  = "/sys/fs/cgroup"
	cgroupFlag = "--cgroup-dir=" + cgroupDir
	luksKey    = "correct horse battery staple"
	// processes are so many that there is always an operation that waits for the limit, also after the emulated processor has stood still:
	// the kernel keeps what a cgroup may do for as long as something waits.
	processes = 16
	// share is what each of the processes has of a file: more than it reads or writes in one measurement, because while processes end and
	// start again the device is idle.
	share = 4 * mib
)

// limitedCase is a kind of volume with limits and what a pod does with it.
type limitedCase struct {
	v       *volume
	systemd bool
	// device is how the kernel's name of the device begins that the limits are for.
	device string
	// line are the limits as io.max shows them.
	line  string
	loads []load
}

// load is what the processes of a pod do at a time, and the rate that the limits allow, of a field of io.stat.
type load struct {
	write bool
	block int64
	field string
	rate  float64
}

// P12: a pod reaches its limits and no more, with each kind of volume and the cgroup names of both drivers of the
// kubelet. A process outside of the pod is not slowed down, and no limit is left when the volume is unpublished.
func TestIOLimits(t *testing.T) {
	notShort(t)
	// Not in parallel: it measures.
	m := ownGuest(t, cgroupFlag)
	h := m.host(t, vm.Yandex)
	h.run("mkdir -p %[1]s; mount -t cgroup2 none %[1]s", cgroupDir)
	for name, tc := range m.limitedCases(t) {
		t.Run(name, func(t *testing.T) { tc.check(t) })
	}
	t.Run("a process outside of the pod", func(t *testing.T) { neighbour(t, h) })
	t.Run("a cgroup without the io controller", func(t *testing.T) { withoutIO(t, h) })
	if left := h.run("find %s -name io.max -exec cat {} +", cgroupDir); left != "" {
		t.Errorf("limits are left: %s", left)
	}
	h.run("find %[1]s/kubepods %[1]s/kubepods.slice -depth -type d -exec rmdir {} +", cgroupDir)
}

func (m *machine) limitedCases(t *testing.T) map[string]limitedCase {
	t.Helper()
	slow := load{true, 4096, "wios", 20}
	limited := func(v *volume, limits driver.IOLimits) *volume {
		v.context.Limits = limits
		v.attach()
		return v
	}
	cloud, scsi := m.host(t, vm.Yandex), m.host(t, vm.DigitalOcean)
	encrypted := cloud.newVolume("ext4", 160*mib)
	encrypted.context.LUKS, encrypted.secrets = true, map[string]string{driver.SecretLUKS: luksKey}
	files, group := m.localVolumes(t)
	return map[string]limitedCase{
		"ext4": {
			limited(cloud.newVolume("ext4", 160*mib), driver.IOLimits{ReadIOPS: 30, WriteIOPS: 20}), false, "vd",
			"rbps=max wbps=max riops=30 wiops=20", []load{slow, {false, 4096, "rios", 30}},
		},
		"xfs": {
			limited(scsi.newVolume("xfs", 320*mib), driver.IOLimits{ReadBandwidth: mib, WriteBandwidth: mib}), true, "sd",
			"rbps=1048576 wbps=1048576 riops=max wiops=max",
			[]load{{true, 64 << 10, "wbytes", float64(mib)}, {false, 64 << 10, "rbytes", float64(mib)}},
		},
		"raw block": {
			limited(cloud.newVolume("", 128*mib), driver.IOLimits{ReadIOPS: 20, WriteIOPS: 20}), true, "vd",
			"rbps=max wbps=max riops=20 wiops=20", []load{slow},
		},
		"LUKS": {
			limited(encrypted, driver.IOLimits{WriteIOPS: 20}), false, "dm-", "rbps=max wbps=max riops=max wiops=20", []load{slow},
		},
		"files of local": {files, false, "loop", "rbps=max wbps=max riops=20 wiops=20", []load{slow}},
		"LVM":            {group, true, "dm-", "rbps=max wbps=max riops=20 wiops=20", []load{slow}},
	}
}

// localVolumes starts both programs of the cloud "local", and creates a volume of a class with limits in a pool of each kind.
func (m *machine) localVolumes(t *testing.T) (files, group *volume) {
	t.Helper()
	h := m.host(t, vm.Yandex)
	kernel := map[string]string{}
	for _, pool := range []string{"files", "group"} {
		disk, err := vm.NewDisk(m.dir, vm.DigitalOcean, pool, 384*mib)
		must(t, err)
		must(t, m.guest.Plug(within(t), disk))
		kernel[pool], err = m.guest.WaitForLink(within(t), disk)
		must(t, err)
	}
	h.run("mkfs.ext4 -q /dev/%[1]s; mkdir -p %[2]s; mount /dev/%[1]s %[2]s", kernel["files"], poolFolder)
	h.run("vgcreate -qq -y vg /dev/%[1]s && mkdir -p /etc/lvm/devices && lvm lvmdevices -y --devicesfile cloudblock-vg --adddev /dev/%[1]s", kernel["group"])
	flags := []string{"--local-pool=" + poolFolder, "--local-pool=group=lvm:vg", "--node-id=node-a"}
	controller, err := m.guest.StartController(within(t), filepath.Join(filepath.Dir(config.Node), "cloudblock-controller"), flags...)
	must(t, err)
	m.nodes[localCloud], err = m.guest.StartNode(within(t), localCloud, append(flags, cgroupFlag)...)
	must(t, err)
	local := &poolHost{host: m.host(t, localCloud), Controller: controller}
	files, err = local.create("in-files", 128*mib, map[string]string{"iops": "20"})
	must(t, err)
	group, err = local.create("in-group", 128*mib, map[string]string{"iops": "20", "pool": "group"})
	must(t, err)
	return files, group
}

func (tc limitedCase) check(t *testing.T) {
	tc.v.host = tc.v.machine.host(t, tc.v.cloud)
	v, first := tc.v, newPod(tc.v, tc.systemd)
	if v.context.LUKS {
		// Its derivation of the key would take a minute.
		v.run(`printf '#!/bin/bash\nargs="$*"\nexec /usr/sbin/cryptsetup ${args/--pbkdf argon2id --pbkdf-memory 65536 --iter-time 1000/--pbkdf pbkdf2 --pbkdf-force-iterations 1000}\n' \
			>/usr/local/bin/cryptsetup; chmod +x /usr/local/bin/cryptsetup`)
	}
	v.target = first.target
	v.ok(v.stage, v.publish, v.publish)
	device := v.servedBy(v.target)
	number := v.run("cat /sys/class/block/%s/dev", device)
	wantLine := func(in pod, want string) {
		t.Helper()
		if got := v.run("cat %s/io.max", in.dir); got != want || !strings.HasPrefix(device, tc.device) {
			t.Errorf("the pod's limits are %q, want %q for a device %s*", got, want, tc.device)
		}
	}
	wantLine(first, number+" "+tc.line)
	file := v.target
	if v.fs != "" {
		file += "/data"
		v.run("dd if=/dev/zero of=%[1]s bs=1M count=%d conv=fsync status=none", file, processes*share/mib)
	}
	for _, l := range tc.loads {
		// Again and again, because the kernel loses what it could have let pass while a busy computer lets the guest stand still: the pod is
		// never above the limit, and reaches it once.
		reached := first.under(func() (reached float64) {
			for begin := time.Now(); reached < 0.95 && time.Since(begin) < patience; {
				rate := first.rate(number, l.field)
				t.Logf("%s %s: %.1f a second, the limit is %.0f (%+.1f %%)", device, l.field, rate, l.rate, (rate/l.rate-1)*100)
				reached = max(reached, rate/l.rate)
			}
			return reached
		}, l, file)
		if reached < 0.95 || reached > 1.05 {
			t.Errorf("the pod reaches %.1f %% of the limit of %s, want 95 to 105", reached*100, l.field)
		}
	}
	if limit := v.context.Limits.WriteBandwidth; limit > 0 {
		// To a file of the pod's: the kernel writes a file back for the cgroup that has dirtied it first.
		const size = 8
		took := float64(v.number(`echo $BASHPID >%s/cgroup.procs; from=${EPOCHREALTIME/./}
			dd if=/dev/zero of=%s-new bs=1M count=%d conv=fsync status=none; echo $((${EPOCHREALTIME/./}-from)); echo $BASHPID >%s/cgroup.procs`,
			first.container, file, size, cgroupDir)) / 1e6
		t.Logf("%d MiB of buffered writes took %.1f s", size, took)
		if took < 0.9*size*float64(mib)/float64(limit) {
			t.Errorf("%d MiB of buffered writes took %.1f s, with a limit of %d bytes a second", size, took, limit)
		}
	}
	// A node program that starts again keeps them, and another pod with the volume has its own.
	must(t, v.Stop(within(t), "KILL"))
	must(t, v.Start(within(t)))
	wantLine(first, number+" "+tc.line)
	second := newPod(v, !tc.systemd)
	v.target = second.target
	v.ok(v.publish)
	wantLine(second, number+" "+tc.line)
	v.ok(v.unpublish, v.unpublish)
	wantLine(second, "")
	v.target = first.target
	wantLine(first, number+" "+tc.line)
	v.ok(v.publish, v.unpublish, v.unpublish)
	wantLine(first, "")
	v.ok(v.unstage)
}

// neighbour compares a process outside of any pod, alone and while a pod with the same volume is at its limit. The disk itself is so slow
// that it, and not the emulated processor, decides how much both reach.
func neighbour(t *testing.T, h *host) {
	const speed = 2 * mib
	v := h.machine.host(t, h.cloud).newVolume("ext4", 256*mib)
	v.context.Limits = driver.IOLimits{ReadIOPS: 20, WriteIOPS: 20}
	v.attach()
	limited := newPod(v, true)
	v.target = limited.target
	v.ok(v.stage, v.publish)
	v.run("dd if=/dev/zero of=%[1]s/data bs=1M count=%[2]d conv=fsync status=none; cp %[1]s/data %[1]s/other; sync -f %[1]s/other", v.target, processes*share/mib)
	number := v.run("cat /sys/class/block/%s/dev", v.servedBy(v.target))
	must(t, v.guest.Throttle(within(t), v.disk, speed, 0))
	// A pod of another class, without limits.
	other := newPod(v, false)
	free := func() float64 { return other.rate(number, "rbytes") }
	var alone, together float64
	for range 3 { // in turn, because the speed of the computer changes
		alone += other.under(free, load{block: 256 << 10}, v.staging+"/other")
		together += other.under(func() float64 { return limited.under(free, load{write: true, block: 4096}, v.target+"/data") },
			load{block: 256 << 10}, v.staging+"/other")
	}
	t.Logf("alone %.2f MiB a second, with the limited pod %.2f (%.1f %%)", alone/3/float64(mib), together/3/float64(mib), together/alone*100)
	if together < 0.9*alone {
		t.Errorf("the process reaches %.1f %% of what it reaches alone, want at least 90 %%", together/alone*100)
	}
	v.down()
}

// withoutIO is a pod in whose cgroup the io controller is not enabled, and one without a cgroup: the volume is refused.
func withoutIO(t *testing.T, h *host) {
	v := h.machine.host(t, h.cloud).newVolume("ext4", 160*mib)
	v.context.Limits = driver.IOLimits{ReadIOPS: 20}
	v.attach()
	v.ok(v.stage)
	limited := newPod(v, false)
	v.target = limited.target
	elsewhere := filepath.Join(cgroupDir, "kubepods/besteffort", filepath.Base(limited.dir)) // where nothing is enabled
	v.run("set -e; rmdir %s %s; mkdir -p %s", limited.container, limited.dir, elsewhere)
	for _, says := range []string{"does not have the io controller", "no cgroup below"} {
		err := v.publish()
		wantCode(t, "publish", err, codes.FailedPrecondition)
		if err == nil || !strings.Contains(err.Error(), "CB-NO-IO-LIMITS") || !strings.Contains(err.Error(), says) {
			t.Errorf("publish = %v, want CB-NO-IO-LIMITS and %q", err, says)
		}
		if mounted := v.run("grep ' %s ' /proc/self/mountinfo || true", v.target); mounted != "" {
			t.Errorf("mounted without limits: %s", mounted)
		}
		v.run("if [ -d %[1]s ]; then rmdir %[1]s; fi", elsewhere)
	}
	v.context.Limits = driver.IOLimits{}
	v.ok(v.publish)
	v.down()
}

// pod is a pod as the kubelet makes it: a cgroup with one of a container in it, and a target path.
type pod struct {
	*host
	dir, container, target string
}

var pods int

// newPod makes a pod in the guest for the volume, with the cgroup names of the kubelet's cgroup driver systemd or cgroupfs. As the
// kubelet does it, each cgroup has all controllers.
func newPod(v *volume, systemd bool) pod {
	v.t.Helper()
	pods++
	uid := fmt.Sprintf("1b9c0b5e-6f0a-4b53-9d6b-%012d", pods)
	name, container := "kubepods/burstable/pod"+uid, "6c1e"
	if systemd {
		name = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
		container = "cri-containerd-6c1e.scope"
	}
	target := fmt.Sprintf("%s/pods/%s/volumes/kubernetes.io~csi/%s/mount", vm.KubeletDir, uid, v.disk.Name)
	if v.fs == "" {
		target = fmt.Sprintf("%s/plugins/kubernetes.io/csi/volumeDevices/publish/%s/%s", vm.KubeletDir, v.disk.Name, uid)
	}
	v.run(`set -e; cd %s; for part in %s; do echo "+io +memory" >cgroup.subtree_control; mkdir -p $part; cd $part; done
		mkdir -p $(dirname %s)`, cgroupDir, strings.ReplaceAll(name+"/"+container, "/", " "), target)
	dir := filepath.Join(cgroupDir, name)
	return pod{v.host, dir, filepath.Join(dir, container), target}
}

// under returns what measure returns while the processes of a pod read or write a file, past the page cache.
func (p pod) under(measure func() float64, l load, file string) float64 {
	p.t.Helper()
	each := share / l.block
	work := fmt.Sprintf("dd if=%s of=/dev/null bs=%d count=%d skip=$((i*%[3]d)) iflag=direct status=none", file, l.block, each)
	if l.write {
		work = fmt.Sprintf("dd if=/dev/zero of=%s bs=%d count=%d seek=$((i*%[3]d)) oflag=direct conv=notrunc status=none", file, l.block, each)
	}
	p.run(`for ((i = 0; i < %[1]d; i++)); do
			setsid bash -c 'i='$i'; echo $$ >%[2]s/cgroup.procs; while :; do %[3]s || exit; done' >/dev/null 2>&1 </dev/null &
		done
		until [ $(wc -l <%[2]s/cgroup.procs) -ge %[4]d ]; do sleep 0.2; done; sleep 2`, processes, p.container, work, 2*processes)
	rate := measure()
	p.run("echo 1 >%[1]s/cgroup.kill; while [ -n \"$(cat %[1]s/cgroup.procs)\" ]; do sleep 0.1; done", p.container)
	return rate
}

// rate returns how much a field of io.stat, of the pod and a device, grows in a second.
func (p pod) rate(number, field string) float64 {
	p.t.Helper()
	out := p.run(`stat() { mapfile -t lines <%s/io.stat; echo $EPOCHREALTIME "${lines[@]}"; }; stat; sleep 15; stat`, p.dir)
	var at, value [2]float64
	for i, line := range strings.Split(out, "\n") {
		words := strings.Fields(line)
		var err error
		at[i], err = strconv.ParseFloat(words[0], 64)
		must(p.t, err)
		_, of, _ := strings.Cut(line, " "+number+" ")
		_, text, found := strings.Cut(of, field+"=")
		if !found {
			p.t.Fatalf("io.stat has nothing of %s: %s", number, line)
		}
		value[i], err = strconv.ParseFloat(strings.Fields(text)[0], 64)
		must(p.t, err)
	}
	return (value[1] - value[0]) / (at[1] - at[0])
}
