package main

import (
	"strings"
	"testing"
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
	release, err := kernelRelease("/")
	if err != nil || checkKernel(release) != nil {
		t.Errorf("the kernel is %q, %v, %v", release, err, checkKernel(release))
	}
}
