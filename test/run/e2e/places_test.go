//go:build e2e

package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// place is where volumes live: a cloud, and sizes that suit it.
type place struct {
	name string
	// size of a new volume, what it grows to, and what a copy grows to.
	size, grown, larger int64
	start               func(t *testing.T) world
	// growsInUse says that a machine sees a volume grow that it has.
	growsInUse bool
	// noCopies: there are no snapshots and clones.
	noCopies bool
}

// world is both programs on a cloud.
type world struct {
	*programs.Pair
	// left names what is still there of volumes that should be gone.
	left func(t *testing.T) []string
	// account is the emulated one; nil on `local`.
	account accounts.Account
}

// grows reports whether a filesystem, or a raw block volume for an empty kind, grows while a pod has it.
func (p place) grows(t *testing.T, kind string) bool {
	t.Helper()
	return p.growsInUse && (kind != "ext4" || mounts.GrowsExt4(t))
}

// onPool is `local` on a pool with a filesystem of its own.
func onPool(host string) place {
	return place{name: "pool on " + host, size: 320 * mib, grown: 512 * mib, larger: 640 * mib, growsInUse: true, noCopies: host != "xfs", start: func(t *testing.T) world {
		pair := startOn(t, host, 4*gib)
		free := capacity(t, pair)
		return world{Pair: pair, left: func(t *testing.T) []string {
			left := inPool(t, pair)
			if got := capacity(t, pair); got < free-slack {
				left = append(left, name("room for ", got, " bytes, not ", free, " as before"))
			}
			return left
		}}
	}}
}

// wantNothingLeft checks the cloud, the devices and the mounts after all volumes are deleted.
func (w world) wantNothingLeft(t *testing.T) {
	t.Helper()
	if left := append(w.left(t), mountsOf(t, w.Dir(), inKubelet)...); len(left) > 0 {
		t.Fatalf("left behind: %s", strings.Join(left, ", "))
	}
}

// inKubelet is in the paths of the kubelets' mounts.
const inKubelet = "/kubelet/"

// mountsOf returns the lines of the mount table about what is below dir and has a part in its path.
func mountsOf(t *testing.T, dir, part string) (found []string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	noError(t, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) && strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}
