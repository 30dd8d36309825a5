package cloudtest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// CloseAfter closes a backend at the end of the test. It allows some time for pending operations.
func CloseAfter(t *testing.T, closeIt func(ctx context.Context) error) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := closeIt(ctx); err != nil {
			t.Error(err)
		}
	})
}

// AtOnce makes a call for each number below n, all at the same time, and fails the test on each error.
func AtOnce(t *testing.T, n int, call func(i int) error) {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := call(i); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// Must ends the test on an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// CreateVolume creates a volume, and ends the test on an error.
func CreateVolume(t *testing.T, c cloud.Cloud, req cloud.CreateVolumeRequest) cloud.Volume {
	t.Helper()
	vol, err := c.CreateVolume(t.Context(), req)
	if err != nil {
		t.Fatalf("CreateVolume(%q) = %v", req.Name, err)
	}
	return vol
}

// CreateSnapshot takes a snapshot, and ends the test on an error.
func CreateSnapshot(t *testing.T, c cloud.Cloud, req cloud.CreateSnapshotRequest) cloud.Snapshot {
	t.Helper()
	snap, err := c.CreateSnapshot(t.Context(), req)
	if err != nil {
		t.Fatalf("CreateSnapshot(%q) = %v", req.Name, err)
	}
	return snap
}

// AttachTo attaches a volume, and ends the test on an error.
func AttachTo(t *testing.T, c cloud.Cloud, id cloud.VolumeID, node cloud.NodeID) {
	t.Helper()
	if _, err := c.Attach(t.Context(), id, node); err != nil {
		t.Fatalf("Attach of %s to %s: %v", id, node, err)
	}
}

// Want fails the test unless the error has the kind and the words.
func Want(t *testing.T, err error, kind fault.Kind, words ...string) {
	t.Helper()
	if fault.Of(err) != kind || (err == nil) != (kind == fault.None) {
		t.Errorf("got %v, want the kind %q", err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// Until lets simulated time pass until the condition holds. It works inside synctest.Test only, where waiting advances the clock
// and takes no real time; outside of it synctest.Wait panics.
func Until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; <-time.After(time.Millisecond) {
		synctest.Wait()
		if holds() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen: %s", what)
		}
	}
}
