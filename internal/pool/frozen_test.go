package pool_test

import (
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// TestIDsAreAsFrozen: the ids stand in PersistentVolumes and VolumeSnapshotContents.
func TestIDsAreAsFrozen(t *testing.T) {
	h := pool.Handle{Node: "node-1.example.com", Pool: pool.DefaultName, ID: "00112233445566778899aabbccddeeff"}
	golden.Format(t, "ids.txt", h.String()+"\n"+h.Snapshot()+"\n")
	if got, err := pool.ParseHandle(h.String()); err != nil || got != h {
		t.Errorf("ParseHandle = %v, %v, want %v", got, err, h)
	}
	if got, err := pool.ParseSnapshotHandle(h.Snapshot()); err != nil || got != h {
		t.Errorf("ParseSnapshotHandle = %v, %v, want %v", got, err, h)
	}
}
