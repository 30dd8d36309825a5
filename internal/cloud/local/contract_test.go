package local_test

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

const node = "n-1"

var elsewhere = cloudtest.Elsewhere{
	Place:    "n-2",
	Volume:   cloud.VolumeID("n-2/default/" + strings.Repeat("0", 32)),
	Snapshot: cloud.SnapshotID("n-2/default/snap-" + strings.Repeat("0", 32)),
}

// at returns the pool in a folder, which need not be a mount point.
func at(t *testing.T, dir string) pool.Config {
	t.Helper()
	return pool.Config{Dir: dir, MountTable: mounts.Table(t, dir)}
}

func open(t *testing.T, dir string) *local.Local {
	t.Helper()
	l, err := local.New(t.Context(), local.Config{Pools: []pool.Config{at(t, dir)}, Node: node})
	must(t, err)
	return l
}

// use holds the shared lock that a loop device of this volume would hold.
func use(t *testing.T, dir string, id cloud.VolumeID) (release func()) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "volumes", path.Base(string(id))+".img"))
	must(t, err)
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB))
	return func() { _ = f.Close() }
}

// harness returns a harness of pools in the folders that newDir makes.
func harness(newDir func(t *testing.T) string) cloudtest.Harness {
	var dir string
	return cloudtest.Harness{
		New: func(t *testing.T) cloud.Cloud {
			dir = newDir(t)
			return open(t, dir)
		},
		InUse: func(t *testing.T, id cloud.VolumeID) func() { return use(t, dir, id) },
		Sick: func(t *testing.T, id cloud.VolumeID) cloud.Health {
			record := filepath.Join(dir, "volumes", path.Base(string(id))+".json")
			must(t, os.Remove(record))
			return cloud.Health{
				Kind: cloud.Inaccessible, Reason: "RecordMissing",
				Message: "its record " + filepath.Base(record) + " is missing; the data is there, put the record back to use it",
			}
		},
		Elsewhere: elsewhere,
		Zones:     []string{node},
		Slow:      true,
	}
}

// noCopies returns the harness of pools without reflinks.
func noCopies(h cloudtest.Harness) cloudtest.Harness {
	open := h.New
	h.New = func(t *testing.T) cloud.Cloud { return withoutCopies(open(t).(*local.Local)) }
	return h
}

func runContract(t *testing.T, h cloudtest.Harness) {
	t.Helper()
	t.Run("bare", func(t *testing.T) { cloudtest.Run(t, h) })
	stack := func(c cloud.Cloud) cloud.Cloud { return middleware.Stack(c, wait.Backoff{}) }
	t.Run("decorated", func(t *testing.T) { cloudtest.Run(t, h.InStack(stack)) })
}

// C1: the suite that every backend passes: one name is one volume.
func TestContract(t *testing.T) {
	h := noCopies(harness(func(t *testing.T) string { return t.TempDir() }))
	// Other users can write to the folder for temporary files.
	h.CapacitySlack = 4 * cloud.GiB
	runContract(t, h)
}
