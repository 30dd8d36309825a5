package local_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/lvm"
)

const gib = 1 << 30

func thinPool(t *testing.T, host *lvm.Host) local.Pool {
	t.Helper()
	return local.Pool{Dir: "lvm:vg/thin", LockDir: t.TempDir(), LVM: host.Run}
}

func openThin(t *testing.T, pools ...local.Pool) *local.Local {
	t.Helper()
	l, err := local.New(t.Context(), local.Config{Pools: pools, Node: node})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(t.Context()) })
	return l
}

func logicalVolume(id cloud.VolumeID) string {
	return "cloudblock-" + strings.TrimPrefix(string(id), node+"/")
}

func TestContractOfThinPools(t *testing.T) {
	var host *lvm.Host
	zeros := strings.Repeat("0", 32)
	runContract(t, cloudtest.Harness{
		New: func(t *testing.T) cloud.Cloud {
			host = lvm.New(3 * gib)
			return openThin(t, thinPool(t, host))
		},
		InUse: func(_ *testing.T, id cloud.VolumeID) func() {
			v := host.Volume(logicalVolume(id))
			v.Active = true
			return func() { v.Active = false }
		},
		Sick: func(_ *testing.T, id cloud.VolumeID) cloud.Health {
			host.Volume(logicalVolume(id)).Tags = nil
			return cloud.Health{
				Kind: cloud.Inaccessible, Reason: "RecordMissing",
				Message: "its tags with the record are missing; the data is there, put the record back to use it",
			}
		},
		Elsewhere: cloudtest.Elsewhere{
			Place: "n-2", Volume: cloud.VolumeID("n-2/" + zeros), Snapshot: cloud.SnapshotID("n-2/snap-" + zeros),
		},
		Zones: []string{node},
		Slow:  true,
	})
}

// Files and logical volumes on one node.
func TestPoolsOfTwoKinds(t *testing.T) {
	for _, thinFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("thinFirst=%t", thinFirst), func(t *testing.T) { testPoolsOfTwoKinds(t, thinFirst) })
	}
}

func testPoolsOfTwoKinds(t *testing.T, thinFirst bool) {
	host := lvm.New(3 * gib)
	thin := thinPool(t, host)
	thin.Name, thin.IDFile = "fast", t.TempDir()+"/state/pool-id-fast"
	pools := []local.Pool{{Dir: t.TempDir()}, thin}
	if thinFirst {
		slices.Reverse(pools)
	}
	l := openThin(t, pools...)
	fast := []cloud.Parameter{{Name: local.ParamPool, Value: "fast"}}
	file := create(t, l, "file")
	req := cloud.CreateVolumeRequest{Name: "thin", Size: size, Parameters: fast}
	vol, err := l.CreateVolume(t.Context(), req)
	if err != nil || host.Volume(logicalVolume(vol.ID)) == nil {
		t.Fatalf("CreateVolume = %+v, %v", vol, err)
	}
	for _, want := range []cloud.Volume{file, vol} {
		if got, err := l.GetVolume(t.Context(), want.ID); err != nil || got.Device != want.Device || got.Name != want.Name {
			t.Errorf("GetVolume(%s) = %+v, %v, want %+v", want.ID, got, err, want)
		}
	}
	_, err = l.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "thin", Size: size})
	wantKind(t, "the name of a logical volume for a file", err, fault.Conflict)
	_, err = l.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "file", Size: size, Parameters: fast})
	wantKind(t, "the name of a file for a logical volume", err, fault.Conflict)
	if n := len(host.Groups()[0].Volumes); n != 2 {
		t.Errorf("the volume group has %d logical volumes, want the thin pool and one more", n)
	}
	_, err = l.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "copy", Size: size, Source: cloud.Source{Volume: vol.ID}})
	wantKind(t, "a copy into another pool", err, fault.InvalidArgument)

	// The disk of the volume group is gone: that is no empty pool.
	groups := host.Groups()
	host.Set()
	wantKind(t, "DeleteVolume without the volume group", l.DeleteVolume(t.Context(), vol.ID), fault.Precondition)
	_, err = l.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "other", Size: size, Parameters: fast})
	wantKind(t, "CreateVolume without the volume group", err, fault.Precondition)
	if got, err := l.Capacity(t.Context(), "", fast); got != 0 || err != nil {
		t.Errorf("Capacity without the volume group = %s, %v, want 0", got, err)
	}
	wantKind(t, "Check without the volume group", l.Check(t.Context()), fault.Precondition)
	if _, err := l.GetVolume(t.Context(), file.ID); err != nil {
		t.Errorf("GetVolume of the other pool = %v", err)
	}
	host.Set(groups...)
	if err := l.DeleteVolume(t.Context(), vol.ID); err != nil {
		t.Errorf("DeleteVolume = %v", err)
	}
}

func TestThinPoolOfANodeWithoutIt(t *testing.T) {
	host := lvm.New(gib)
	thin := thinPool(t, host)
	thin.Name, thin.IDFile, thin.Dir = "fast", t.TempDir()+"/state/pool-id-fast", "lvm:other/thin"
	l := openThin(t, local.Pool{Dir: t.TempDir()}, thin)
	fast := []cloud.Parameter{{Name: local.ParamPool, Value: "fast"}}
	_, err := l.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "a", Size: size, Parameters: fast})
	wantKind(t, "CreateVolume in an absent pool", err, fault.Exhausted)
	if err := l.Check(t.Context()); err != nil {
		t.Errorf("Check = %v, want no error", err)
	}
	if _, err := os.Stat(thin.IDFile); err == nil {
		t.Error("an absent pool has an id")
	}
}
