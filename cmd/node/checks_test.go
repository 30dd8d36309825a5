package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/doctor"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestKernelsWithoutTheNewMountCallsAreRefused(t *testing.T) {
	for release, want := range map[string]string{
		"5.12":                        "",
		"5.12.0-rc1":                  "",
		"5.14.0-427.13.1.el9_4":       "",
		"6.1.0-18-amd64":              "",
		"10.0":                        "",
		"5.11.22-generic":             "needs Linux 5.12 or newer",
		"5.10.0-28-cloud-amd64":       "needs Linux 5.12 or newer",
		"5.4.0-1100-kvm":              "needs Linux 5.12 or newer",
		"4.18.0-553.el8_10.x86_64":    "needs Linux 5.12 or newer",
		"5.1":                         "needs Linux 5.12 or newer",
		"":                            "not of the form",
		"5":                           "not of the form",
		"Linux 5.12":                  "not of the form",
		"99999999999999999999.1":      "not of the form",
		"5.99999999999999999999-evil": "not of the form",
	} {
		err := checkKernel(release)
		switch {
		case want == "" && err == nil:
		case want == "" || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), release):
			t.Errorf("checkKernel(%q) = %v, want %q", release, err, want)
		}
	}
}

func TestTheKernelOfTheTestsIsNewEnough(t *testing.T) {
	var found doctor.Report
	host{root: "/"}.kernel(t.Context(), &found)
	if len(found) != 1 || found[0].State != doctor.OK {
		t.Errorf("of the kernel doctor finds %+v", found)
	}
}

func TestDoctorReportsEveryCheck(t *testing.T) {
	for _, cloud := range []string{"local", "linode"} {
		p := newPatient(t, cloud)
		checks := p.checks()
		report := doctor.Examine(t.Context(), checks)
		for _, c := range checks {
			if !slices.ContainsFunc(report, func(f doctor.Finding) bool { return f.Check == c.Name }) {
				t.Errorf("--cloud=%s: doctor says nothing of the check %q: %+v", cloud, c.Name, report)
			}
		}
	}
}

// TestTheStartSaysWhatDoctorSays: both report the same fault with the same sentence, including the remedy.
func TestTheStartSaysWhatDoctorSays(t *testing.T) {
	for name, tc := range map[string]struct {
		plant func(p *patient)
		check string
		does  string // at the start
	}{
		"an old kernel": {func(p *patient) { p.write("proc/sys/kernel/osrelease", "4.18.0-553.el8\n") }, "kernel", "refuses"},
		"no umount":     {func(p *patient) { p.remove("bin/umount") }, "tools", "refuses"},
		"no xfs_growfs": {func(p *patient) { p.remove("bin/xfs_growfs") }, "tools", "logs"},
		"no folder of the socket": {func(p *patient) {
			p.flags = append(p.flags, "--endpoint=unix://"+p.path("none/csi.sock"))
		}, "socket", "refuses"},
		"a file in place of that folder": {func(p *patient) {
			p.flags = append(p.flags, "--endpoint=unix://"+p.path("dev/loop-control/csi.sock"))
		}, "socket", "refuses"},
		"no kubelet's folder": {func(p *patient) { p.remove("kubelet") }, "kubelet", "logs"},
		"no mount propagation": {func(p *patient) {
			p.write("proc/self/mountinfo", "22 1 8:1 / "+p.path("kubelet")+" rw,relatime - ext4 /dev/sda1 rw\n")
		}, "propagation", "is not ready"},
		"SELinux, and a plain container": {func(p *patient) {
			p.write("proc/self/attr/current", "system_u:system_r:container_t:s0:c1,c2\x00")
		}, "selinux", "logs"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t, "local")
			p.T = t
			tc.plant(p)
			checks := p.checks()
			var logged error
			warn := func(_ string, keysAndValues ...any) {
				logged = errors.Join(logged, keysAndValues[slices.Index(keysAndValues, any("error"))+1].(error))
			}
			unready, refusal := doctor.Start(t.Context(), checks, warn)
			said := map[string]error{"refuses": refusal, "is not ready": unready, "logs": logged}
			for _, f := range doctor.Examine(t.Context(), checks) {
				if f.Check != tc.check || f.State == doctor.OK {
					continue
				}
				for does, err := range said {
					want := f.Message + "; " + f.Remedy
					if f.Reason != "" {
						want = string(f.Reason) + ": " + want
					}
					if does != tc.does {
						want = "<nil>"
					}
					if got := fmt.Sprint(err); got != want {
						t.Errorf("the start %s: %s\nwant: %s", does, got, want)
					}
				}
				return
			}
			t.Error("doctor does not find it")
		})
	}
}

// A node that is to limit I/O and cannot says so; one that is not to limit it is asked nothing.
func TestDoctorChecksTheCgroupsWhereLimitsAreOn(t *testing.T) {
	p := newPatient(t, "local")
	find := func() (found doctor.Report) {
		for _, f := range doctor.Examine(t.Context(), p.checks()) {
			if f.Check == "cgroups" {
				found = append(found, f)
			}
		}
		return found
	}
	if found := find(); len(found) > 0 {
		t.Errorf("without --cgroup-dir doctor finds %+v", found)
	}
	p.write("cgroup/cgroup.controllers", "cpu io memory\n")
	p.flags = append(p.flags, "--cgroup-dir=/cgroup")
	if found := find(); len(found) != 1 || found[0].Reason != fault.NoIOLimits || !strings.Contains(found[0].Message, p.path("cgroup")) {
		t.Errorf("with a folder that is no mount of cgroup v2 doctor finds %+v", found)
	}
}
