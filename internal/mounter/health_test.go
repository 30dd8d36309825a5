package mounter

import (
	"testing"

	mountutils "k8s.io/mount-utils"
)

func TestParseBtrfsErrors(t *testing.T) {
	const healthy = "write_errs 0\nread_errs 0\nflush_errs 0\ncorruption_errs 0\ngeneration_errs 0\n"
	for name, tc := range map[string]struct {
		text            string
		device, damaged int
	}{
		"a sound device":          {healthy, 0, 0},
		"a failing device":        {"write_errs 3\nread_errs 4\nflush_errs 1\ncorruption_errs 0\ngeneration_errs 0\n", 8, 0},
		"a device that lies":      {"write_errs 0\ncorruption_errs 2\ngeneration_errs 5\n", 0, 7},
		"what cannot be read":     {"write_errs\nread_errs x\ncorruption_errs -3\n", 0, 0},
		"a kernel that says none": {"", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if device, damaged := parseBtrfsErrors(tc.text); device != tc.device || damaged != tc.damaged {
				t.Errorf("parseBtrfsErrors = %d, %d, want %d, %d", device, damaged, tc.device, tc.damaged)
			}
		})
	}
}

func TestReadOnlyByError(t *testing.T) {
	for name, tc := range map[string]struct {
		mount, super []string
		want         bool
	}{
		"mounted writable":                      {[]string{"rw", "relatime"}, []string{"rw"}, false},
		"mounted read-only":                     {[]string{"ro"}, []string{"ro"}, false},
		"bound read-only":                       {[]string{"ro"}, []string{"rw"}, false},
		"turned read-only":                      {[]string{"rw"}, []string{"ro", "seclabel"}, true},
		"turned read-only, as Linux 6.15 says":  {[]string{"rw"}, []string{"rw", "emergency_ro"}, true},
		"a filesystem whose options begin with": {[]string{"rw"}, []string{"rw", "rodir"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := readOnlyByError(Mount{MountInfo: mountutils.MountInfo{MountOptions: tc.mount, SuperOptions: tc.super}}); got != tc.want {
				t.Errorf("readOnlyByError = %v, want %v", got, tc.want)
			}
		})
	}
}
