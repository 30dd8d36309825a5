package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/doctor"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// patient is a machine in a folder, without a fault.
type patient struct {
	*testing.T
	root    string
	flags   []string
	account accounts.Account
}

func newPatient(t *testing.T, cloud string) *patient {
	t.Helper()
	p := &patient{T: t, root: t.TempDir()}
	p.write("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
	p.write("dev/loop-control", "")
	p.write("proc/self/mountinfo", "")
	must(p, os.MkdirAll(p.path("sys/block"), 0o755))
	must(p, os.Mkdir(p.path("kubelet"), 0o755))
	for _, tool := range tools {
		for _, program := range tool.programs {
			p.write("bin/"+program, "#!/bin/sh\necho "+program+" 1.2.3\n")
		}
	}
	p.flags = []string{"--cloud=" + cloud, "--endpoint=unix://" + p.path("csi.sock"), "--kubelet-dir=" + p.path("kubelet")}
	if cloud == "local" {
		must(p, os.Mkdir(p.path("pool"), 0o700))
		must(p, os.Mkdir(p.path("second"), 0o700))
		p.mount("pool", "second")
		p.flags = append(p.flags, "--node-id=n", "--local-pool="+p.path("pool"), "--local-pool=second="+p.path("second"))
		return p
	}
	account, err := accounts.Start(cloud, accounts.Options{Machines: 1})
	must(p, err)
	t.Cleanup(func() { _ = account.Close() })
	must(p, account.Listen(t.Context(), "127.0.0.1:0"))
	p.account = account
	must(p, os.Mkdir(p.path("by-id"), 0o755))
	p.flags = append(p.flags, "--device-dir="+p.path("by-id"), "--metadata-endpoint="+account.Metadata(account.Machines()[0]))
	return p
}

func (p *patient) path(name string) string { return filepath.Join(p.root, name) }

// checks returns the checks of the program with the flags.
func (p *patient) checks() []doctor.Check {
	p.Helper()
	cfg, err := parse(p.flags, nil, nil)
	must(p, err)
	return host{&cfg, p.root, p.path("bin")}.checks()
}

func (p *patient) write(name, text string) {
	p.Helper()
	must(p, errors.Join(os.MkdirAll(filepath.Dir(p.path(name)), 0o755), os.WriteFile(p.path(name), []byte(text), 0o755)))
}

// mount writes a mount table with filesystems at these folders of the machine.
func (p *patient) mount(folders ...string) {
	p.Helper()
	for i := range folders {
		folders[i] = p.path(folders[i])
	}
	p.write("proc/self/mountinfo", "")
	mounts.Write(p, p.path("proc/self/mountinfo"), folders...)
}

func (p *patient) remove(name string) { p.Helper(); must(p, os.RemoveAll(p.path(name))) }

// disk adds a disk with the serial of a virtio disk, and a link to another kernel name.
func (p *patient) disk(kernel, serial, link, to string) {
	p.Helper()
	p.write("sys/block/"+kernel+"/serial", serial)
	must(p, os.MkdirAll(p.path("sys/block/"+kernel+"/device"), 0o755))
	must(p, os.Symlink("../../../bus/virtio", p.path("sys/block/"+kernel+"/device/subsystem")))
	must(p, os.Symlink("../../"+to, p.path("by-id/"+link)))
}

// TestDoctorFindsWhatIsWrongWithAMachine: each planted fault is found, with its remedy, and nothing else is.
func TestDoctorFindsWhatIsWrongWithAMachine(t *testing.T) {
	wrong, warning := doctor.Wrong, doctor.Warning
	tests := map[string]struct {
		cloud  string
		plant  func(p *patient)
		check  string
		state  doctor.State
		reason fault.Reason
		says   string
		remedy string
	}{
		"nothing, on a cloud":   {"yandex", func(*patient) {}, "tools", doctor.OK, "", "mkfs.xfs 1.2.3", ""},
		"nothing, and a volume": {"yandex", func(p *patient) { p.disk("vdb", "epd1", "virtio-epd1", "vdb") }, "links", doctor.OK, "", "1 links", ""},
		"an old kernel":         {"yandex", func(p *patient) { p.write("proc/sys/kernel/osrelease", "4.18.0-553.el8\n") }, "kernel", wrong, "", "4.18.0", "install a newer kernel"},
		"no mount":              {"yandex", func(p *patient) { p.remove("bin/mount") }, "tools", wrong, fault.ProgramMissing, "mount", "install them"},
		"no mkfs.xfs":           {"yandex", func(p *patient) { p.remove("bin/mkfs.xfs") }, "tools", warning, fault.ProgramMissing, "mkfs.xfs", "a StorageClass uses xfs"},
		"no kubelet's folder":   {"yandex", func(p *patient) { p.remove("kubelet") }, "kubelet", wrong, "", "kubelet", "--kubelet-dir"},
		"AppArmor":              {"yandex", func(p *patient) { p.write("proc/self/attr/current", "docker-default (enforce)\n") }, "selinux", doctor.OK, "", "not in use", ""},
		"AppArmor and LXD":      {"yandex", func(p *patient) { p.write("proc/self/attr/current", "lxd-a//&:lxd-a:unconfined (x)\n") }, "selinux", doctor.OK, "", "not in use", ""},
		"SELinux that is permissive": {"yandex", func(p *patient) {
			p.write("sys/fs/selinux/enforce", "0")
			p.write("proc/self/attr/current", "system_u:system_r:container_t:s0\x00")
		}, "selinux", doctor.OK, "", "not enforcing", ""},
		"SELinux, and a plain container": {"yandex", func(p *patient) {
			p.write("proc/self/attr/current", "system_u:system_r:container_t:s0:c1,c2\x00")
		}, "selinux", wrong, "", "container_t", "component selinux"},
		"SELinux, and the component": {"yandex", func(p *patient) {
			p.write("sys/fs/selinux/enforce", "1")
			p.write("proc/self/attr/current", "system_u:system_r:spc_t:s0\x00")
		}, "selinux", doctor.OK, "", "spc_t", ""},
		"no metadata service": {"yandex", func(p *patient) { p.flags = append(p.flags, "--metadata-endpoint=http://127.0.0.1:1") }, "metadata", wrong, "", "127.0.0.1:1", "host-network"},
		"a link to no disk":   {"yandex", func(p *patient) { p.disk("vdb", "epd1", "virtio-epd2", "vdc") }, "links", warning, fault.DeviceIdentity, "virtio-epd2", "udevadm trigger"},
		"a link to another disk": {"yandex", func(p *patient) { p.disk("vdb", "epd1", "virtio-epd2", "vdb") },
			"links", warning, fault.DeviceIdentity, "another disk", "udevadm trigger"},
		"no loop devices": {"local", func(p *patient) { p.remove("dev/loop-control") }, "loop", wrong, "", "loop-control", "modprobe loop"},
		"no loop devices, for a volume group": {"local", func(p *patient) {
			p.remove("dev/loop-control")
			p.flags = append(p.flags[:len(p.flags)-2], "--local-pool=lvm:absent")
		}, "pool", wrong, fault.PoolUnusable, "absent", ""},
		"nothing, on local":    {"local", func(*patient) {}, "pool", doctor.OK, "", "", ""},
		"a pool for everybody": {"local", func(p *patient) { must(p, os.Chmod(p.path("pool"), 0o777)) }, "pool", wrong, fault.PoolUnusable, "0777", "chmod 0700"},
		"one of two pools": {"local", func(p *patient) { p.mount("pool") },
			"pool second", warning, fault.PoolUnusable, "no filesystem is mounted", "a node without this pool needs nothing"},
		"a pool that is not mounted": {"local", func(p *patient) {
			p.flags = p.flags[:len(p.flags)-1]
			p.mount()
		}, "pool", wrong, fault.PoolUnusable, "no filesystem is mounted", "mount the right disk"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t, tc.cloud)
			tc.plant(p)
			report := doctor.Examine(t.Context(), p.checks())
			is := func(f doctor.Finding) bool {
				return f.Check == tc.check && f.State == tc.state && f.Reason == tc.reason && strings.Contains(f.Message, tc.says) && strings.Contains(f.Remedy, tc.remedy)
			}
			if !slices.ContainsFunc(report, is) {
				t.Errorf("doctor finds %+v, want %s %s %q", report, tc.state, tc.check, tc.says)
			}
			for _, f := range report {
				if f.State != doctor.OK && !is(f) {
					t.Errorf("doctor finds %+v too", f)
				}
			}
		})
	}
}

func TestDoctorRefusesAWrongCommandLine(t *testing.T) {
	for _, args := range [][]string{{"doctor", "--cloud=mars"}, {"doctor", "--cloud=linode", "--output=xml"}, {"doctor", "--x"}} {
		var out bytes.Buffer
		if err := run(context.Background(), args, nil, &out, &out); !errors.Is(err, driver.ErrCommandLine) {
			t.Errorf("%q = %v, want %v", args, err, driver.ErrCommandLine)
		}
	}
}
