//go:build vm

package local_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// TestContractOnLVM runs in the virtual machine of test/run/e2e/vm, which has the empty volume group vg.
func TestContractOnLVM(t *testing.T) {
	cloudtest.Run(t, cloudtest.Harness{
		New: func(t *testing.T) cloud.Cloud {
			run(t, "lvremove", "-y", "-S", "lv_name=~^cloudblock-", "vg")
			return withoutCopies(openGroup(t, pool.Config{Dir: "lvm:vg"}))
		},
		InUse: func(t *testing.T, id cloud.VolumeID) func() {
			run(t, "lvchange", "-ay", "-K", "vg/"+logicalVolume(id))
			return func() { run(t, "lvchange", "-an", "vg/"+logicalVolume(id)) }
		},
		Sick: func(t *testing.T, id cloud.VolumeID) cloud.Health {
			tags := run(t, "lvs", "--noheadings", "-o", "lv_tags", "vg/"+logicalVolume(id))
			for tag := range strings.SplitSeq(strings.TrimSpace(tags), ",") {
				run(t, "lvchange", "--deltag", tag, "vg/"+logicalVolume(id))
			}
			return cloud.Health{
				Kind: cloud.Inaccessible, Reason: "RecordMissing",
				Message: "its tag with the name is missing; the data is there, put the record back to use it",
			}
		},
		Elsewhere: elsewhere,
		Zones:     []string{node},
		Slow:      true,
	})
}

// run runs a command of LVM as the node's operator does, with udev.
func run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("lvm", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("lvm %v: %v: %s", args, err, stderr.Bytes())
	}
	return string(out)
}
