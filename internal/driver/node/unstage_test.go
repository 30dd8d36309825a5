package node

import (
	"fmt"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestWhatKeepsAVolumeFromUnstageIsExplained(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want fault.Reason
	}{
		"a mount":                 {fmt.Errorf("the volume is in use at /x: %w", fault.Precondition), fault.UnstageInUse},
		"a detach that must wait": {fmt.Errorf("/dev/loop1: %w", fault.Busy), fault.UnstageInUse},
		"an open disk":            {fmt.Errorf("/dev/sda: %w", fault.DeviceInUse), fault.UnstageInUse},
		"another disk":            {fmt.Errorf("/dev/sda: %w", fault.DeviceIdentity), fault.DeviceIdentity},
		"a missing program":       {fmt.Errorf("umount: %w", fault.ProgramMissing), fault.ProgramMissing},
		"no answer":               {fault.Unavailable, fault.NoReason},
	} {
		t.Run(name, func(t *testing.T) {
			got := explainUnstage(tc.err)
			if fault.ReasonOf(got) != tc.want || fault.Of(got) != fault.Of(tc.err) || got.Error() != tc.err.Error() {
				t.Errorf("explainUnstage(%v) = %v for %q, want %q", tc.err, got, string(fault.ReasonOf(got)), string(tc.want))
			}
		})
	}
}
