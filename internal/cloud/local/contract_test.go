package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
)

// node is so chosen that an id with a character more or less in front is no id at all: one of another
// node is, and not a missing volume (TestVolumesOfOtherNodes).
const node = "n-1.a-node-whose-name-has-the-sixty-three-characters.of-a-label"

func open(t *testing.T, dir string) *local.Local {
	t.Helper()
	l, err := local.New(t.Context(), local.Config{Pool: dir, Node: node})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// use holds the shared lock that a loop device of this volume would hold.
func use(t *testing.T, dir string, id cloud.VolumeID) (release func()) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "volumes", strings.TrimPrefix(string(id), node+"/")+".img"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	return func() { _ = f.Close() }
}

func TestContract(t *testing.T) {
	var dir string
	h := cloudtest.Harness{
		New: func(t *testing.T) cloud.Cloud {
			dir = t.TempDir()
			return open(t, dir)
		},
		InUse: func(t *testing.T, id cloud.VolumeID) func() { return use(t, dir, id) },
		Zones: []string{node},
		// The folder for temporary files is everybody's.
		CapacitySlack: 4 * cloud.GiB,
		Slow:          true,
	}
	t.Run("bare", func(t *testing.T) { cloudtest.Run(t, h) })

	bare := h.New
	h.New = func(t *testing.T) cloud.Cloud { return middleware.Stack(bare(t), middleware.Options{}) }
	h.Idempotent = true
	t.Run("decorated", func(t *testing.T) { cloudtest.Run(t, h) })
}
