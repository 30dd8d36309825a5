package mount

import (
	"errors"
	"testing"

	"github.com/moby/sys/mountinfo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// After an unpublish that comes in between, the path is a folder of another filesystem, such as the node's own.
func TestTheUsageOfAnotherFilesystemIsNotTheVolumes(t *testing.T) {
	m := New(Config{})
	at := t.TempDir()
	table, err := m.Table()
	if err != nil {
		t.Fatal(err)
	}
	around, err := table.MountOf(at)
	if err != nil {
		t.Fatal(err)
	}
	volume := Mount{Info: mountinfo.Info{ID: around.ID, Mountpoint: at}}
	if got, err := m.Stats(t.Context(), volume); err != nil || got.TotalBytes == 0 {
		t.Errorf("Stats of the mount = %+v, %v", got, err)
	}
	volume.ID++
	if got, err := m.Stats(t.Context(), volume); !errors.Is(err, fault.Unavailable) {
		t.Errorf("Stats of a mount that has gone = %+v, %v, want %v", got, err, fault.Unavailable)
	}
}
