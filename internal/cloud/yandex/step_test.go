package yandex_test

import (
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// E3: what asks a disk to grow has to know before what it will be rounded up to.
func TestADiskSaysTheStepsThatItGrowsIn(t *testing.T) {
	for name, tc := range map[string]struct {
		diskType            string
		made, step, largest cloud.Bytes
	}{
		"a usual type":    {"network-ssd", cloud.GiB, 0, cloud.GiB + 4*cloud.MiB},
		"of whole drives": {"network-ssd-nonreplicated", 93 * cloud.GiB, 93 * cloud.GiB, 186 * cloud.GiB},
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, start(t, emulator.Options{}))
			req := request("a")
			req.Parameters = []cloud.Parameter{{Name: "type", Value: tc.diskType}}
			made := create(t, c, req)
			seen, err := c.GetVolume(t.Context(), made.ID)
			must(t, err)
			for what, vol := range map[string]cloud.Volume{"CreateVolume": made, "GetVolume": seen} {
				if vol.Size != tc.made || vol.SizeStep != tc.step {
					t.Errorf("%s = %s in steps of %s, want %s in steps of %s", what, vol.Size, vol.SizeStep, tc.made, tc.step)
				}
			}
			exp, err := c.ExpandVolume(t.Context(), made.ID, made.Size+1)
			must(t, err)
			if exp.Size != tc.largest {
				t.Errorf("ExpandVolume = %s, want %s", exp.Size, tc.largest)
			}
		})
	}
}
