//go:build e2e

package main

import (
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/doctor"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// TestDoctorOfTheRealProgram: on this machine it finds only the planted fault, in a separate mount namespace like a container's.
func TestDoctorOfTheRealProgram(t *testing.T) {
	dir := tempDir(t)
	binary := build(t, dir)
	const own = "mount -t tmpfs none /var/lib && mkdir -p /var/lib/kubelet/pods /var/lib/csi && mkdir -m 700 /var/lib/pool && "
	const inFile = own + "mkdir /var/lib/d && truncate -s 400M /var/lib/d/img && mkfs.xfs -q /var/lib/d/img && " +
		"mount -o loop /var/lib/d/img /var/lib/pool && chmod 700 /var/lib/pool && "
	for name, tc := range map[string]struct {
		mounts string
		wrong  string // the check, and what it says
		says   string
	}{
		"a pool that is not mounted":        {own, "pool", "no filesystem is mounted at /var/lib/pool"},
		"a pool in a file with holes":       {inFile, "", " bytes of /var/lib/d/img, the file below the pool, are not reserved"},
		"a pool in a file that is filled":   {inFile + "fallocate -l 400M /var/lib/d/img && ", "", "is for volumes alone"},
		"a pool in a file that is not seen": {inFile + "mount -t tmpfs none /var/lib/d && ", "", "cannot be seen from here"},
		"no mount propagation":              {inFile + "mount --bind /var/lib/kubelet /var/lib/kubelet && ", "propagation", "mountPropagation: Bidirectional"},
		"a read-only folder of the socket":  {inFile + "mount -t tmpfs -o ro none /var/lib/csi && ", "socket", "read-only file system"},
		"a read-only /sys":                  {inFile + "mount -o remount,bind,ro /sys && ", "loop", "mount the host's /sys"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := mounts.Separate(t.Context(), dir, "sh", "-c",
				tc.mounts+"exec "+binary+" doctor --output json --cloud local --node-id n --local-pool /var/lib/pool --endpoint unix:///var/lib/csi/csi.sock")
			out, err := cmd.Output()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			var report doctor.Report
			if err := json.Unmarshal(out, &report); err != nil {
				t.Fatalf("%q: %v", out, err)
			}
			is := func(f doctor.Finding) bool {
				return strings.Contains(f.Message, tc.says) && (tc.wrong == "" || f.Check == tc.wrong && f.State == doctor.Wrong && f.Remedy != "")
			}
			if code := cmd.ProcessState.ExitCode(); !slices.ContainsFunc(report, is) || code != min(len(tc.wrong), 1) {
				t.Errorf("doctor exits with %d and finds %+v, want %q %q", code, report, tc.wrong, tc.says)
			}
		})
	}
}
