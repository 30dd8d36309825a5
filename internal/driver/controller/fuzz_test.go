package controller_test

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
)

// C6: no request of any call makes a handler panic or fail without a reason.
func FuzzCalls(f *testing.F) {
	r := start(f, memory.Config{})
	made, err := r.CreateVolume(drivertest.Waiting(f), request("v"))
	if err != nil {
		f.Fatal(err)
	}
	id := made.GetVolume().GetVolumeId()
	snapshot, err := r.CreateSnapshot(drivertest.Waiting(f), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: id})
	if err != nil {
		f.Fatal(err)
	}
	texts := []string{"x", "ext4", id, snapshot.GetSnapshot().GetSnapshotId(), "node-1", "../x", "\x01", "a=b", strings.Repeat("long", 500)}
	drivertest.FuzzCalls(f, "csi.v1.Controller", r.conn, texts, func(t *testing.T, call string) {
		if text := r.log.Take(); strings.Contains(text, `"panic"`) {
			t.Fatalf("%s: a handler panicked:\n%s", call, text)
		}
	})
}
