//go:build vm

package vm

import "testing"

// TestLifeOfAVolume is the usual case on the disks of each cloud: attached, formatted, written, moved away and back.
func TestLifeOfAVolume(t *testing.T) {
	onEachCloud(t, func(t *testing.T, h *host) {
		for _, fs := range []string{"ext4", "xfs", ""} {
			t.Run(kindName(fs), func(t *testing.T) {
				v := h.host(t, h.cloud).newVolume(fs, sizeFor(fs))
				v.attach()
				v.ok(v.stage, v.stage, v.publish, v.publish)
				if fs == "" {
					v.run("head -c 1M /dev/urandom | dd of=%s bs=1M iflag=fullblock conv=fsync status=none", v.target)
					v.down()
					return
				}
				want := v.fill("data", mib)
				v.down()
				v.detach()
				v.attach()
				v.ok(v.stage, v.publish)
				if got := v.sum("data"); got != want {
					t.Errorf("the file has checksum %s, want %s", got, want)
				}
				v.down()
			})
		}
	})
}
