//go:build e2e

package node_test

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

// P12: a volume whose class limits I/O is not published without its limits. TestIOLimits in the virtual machine has
// those that hold.
func TestLimitsThatANodeCannotSet(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ dir, says string }{
		"limits are off":              {"", "--cgroup-dir"},
		"a machine without cgroup v2": {t.TempDir(), "no mount of cgroup v2"},
	} {
		for _, fs := range []string{"ext4", ""} {
			t.Run(name+", "+fs, func(t *testing.T) {
				m := newMachine(t, machineConfig{cgroups: tc.dir})
				v := m.newVolume(fs, sizeFor(fs))
				v.target = filepath.Join(m.kubelet, "pods/1b9c0b5e-6f0a-4b53-9d6b-0c1f7a2d4e11/volumes/kubernetes.io~csi/pv/mount")
				must(t, os.MkdirAll(filepath.Dir(v.target), 0o750))
				v.ok(v.stage, v.publish, v.unpublish) // without limits
				said, err := names.DecodeVolumeContext(v.context)
				must(t, err)
				said.Limits = driver.IOLimits{WriteIOPS: 100}
				v.context = names.EncodeVolumeContext(said)
				for range 2 {
					err := v.publish(t.Context())
					wantRefusal(t, "publish", err, codes.FailedPrecondition, "CB-NO-IO-LIMITS")
					wantRefusal(t, "publish", err, codes.FailedPrecondition, tc.says)
				}
				if left := mountsBelow(t, v.target); len(left) > 0 {
					t.Errorf("mounted without limits: %v", left)
				}
				v.gone()
			})
		}
	}
}
