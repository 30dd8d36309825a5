//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/programs"
)

// place is where volumes live: a cloud, and sizes that suit it.
type place struct {
	name string
	// size of a new volume, what it grows to, and what it is restored to.
	size, grown, larger int64
	start               func(t *testing.T) world
}

// world is both programs on a cloud.
type world struct {
	*programs.Pair
	// left names what is still there of volumes that should be gone.
	left func(t *testing.T) []string
}

// onPool is `local` on a pool with a filesystem of its own.
func onPool(host string) place {
	return place{"pool on " + host, 320 * mib, 512 * mib, 640 * mib, func(t *testing.T) world {
		pair := startOn(t, host, 4*gib)
		free := capacity(t, pair)
		return world{pair, func(t *testing.T) []string {
			eventually(t, "no file of a freeze is left", func() bool {
				notes, err := os.ReadDir(filepath.Join(pair.Pool(), "freeze"))
				return err == nil && len(notes) == 0
			})
			left := inPool(t, pair)
			if got := capacity(t, pair); got != free {
				left = append(left, name("room for ", got, " bytes, not ", free, " as before"))
			}
			return left
		}}
	}}
}

// actionTime is how long an emulated cloud takes for a change where nobody says otherwise.
const actionTime = 20 * time.Millisecond

// onDigitalOcean is an emulated account.
var onDigitalOcean = place{"DigitalOcean", gib, 2 * gib, 3 * gib, func(t *testing.T) world {
	w, _ := startDigitalOcean(t, emulator.Options{})
	return w
}}

// startDigitalOcean starts an account, and both programs on it with this machine as a droplet.
func startDigitalOcean(t *testing.T, opts emulator.Options, flags ...string) (world, *emulator.Cloud) {
	t.Helper()
	dir := folder(t)
	opts.DataDir = filepath.Join(dir, "account")
	opts.Durations = emulator.Actions(clock.Fixed(actionTime))
	account := emulator.Start(t, opts)
	cloud := programs.DigitalOcean{Account: account}
	pair := start(t, programs.Options{Dir: dir, Cloud: cloud, Flags: flags})
	return world{pair, func(t *testing.T) []string {
		return slices.Concat(cloud.Left(), cloud.Troubles(), loopsBelow(t, dir))
	}}, account
}

// wantNothingLeft checks the cloud, the devices and the mounts after all volumes are deleted.
func (w world) wantNothingLeft(t *testing.T) {
	t.Helper()
	if left := append(w.left(t), mountsOf(t, w.Dir())...); len(left) > 0 {
		t.Fatalf("left behind: %s", strings.Join(left, ", "))
	}
}

// mountsOf returns the lines of the mount table about the kubelets' folders below dir.
func mountsOf(t *testing.T, dir string) (found []string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) && strings.Contains(line, "/kubelet/") {
			found = append(found, line)
		}
	}
	return found
}

// loopsBelow returns the loop devices of files below dir.
func loopsBelow(t *testing.T, dir string) []string {
	t.Helper()
	loops, err := programs.LoopsBelow(dir)
	if err != nil {
		t.Fatal(err)
	}
	return loops
}
