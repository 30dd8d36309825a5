package local_test

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/lvm"
)

const gib = 1 << 30

// groupPool returns the pool of the volume group vg of a host, which has a devices file.
func groupPool(t *testing.T, host *lvm.Host) pool.Config {
	t.Helper()
	settings := t.TempDir()
	must(t, errors.Join(os.Mkdir(settings+"/devices", 0o755), os.WriteFile(settings+"/devices/cloudblock-vg", nil, 0o644)))
	return pool.Config{Dir: "lvm:vg", LockDir: t.TempDir(), LVMDir: settings, LVM: host}
}

// withoutCopies returns the backend of a node whose pools have no reflinks: the contract of clouds without snapshots and clones
// applies to it.
func withoutCopies(l *local.Local) cloud.Cloud { return smaller{pools: pools{l}} }

type smaller struct {
	cloud.NoSnapshots // in place of the methods of pools, which are embedded deeper
	pools
}

type pools struct{ *local.Local }

func (s smaller) Capabilities() cloud.Capabilities {
	caps := s.Local.Capabilities()
	caps.Snapshots, caps.SnapshotZones, caps.Clones = false, false, false
	return caps
}

func openGroup(t *testing.T, pools ...pool.Config) *local.Local {
	t.Helper()
	l, err := local.New(t.Context(), local.Config{Pools: pools, Node: node})
	must(t, err)
	t.Cleanup(func() { _ = l.Close(t.Context()) })
	return l
}

func logicalVolume(id cloud.VolumeID) string {
	return "cloudblock-" + path.Base(string(id))
}

func TestContractOfVolumeGroups(t *testing.T) {
	var host *lvm.Host
	runContract(t, cloudtest.Harness{
		New: func(t *testing.T) cloud.Cloud {
			host = lvm.New(3 * gib)
			return withoutCopies(openGroup(t, groupPool(t, host)))
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
				Message: "its tag with the name is missing; the data is there, put the record back to use it",
			}
		},
		Elsewhere: elsewhere,
		Zones:     []string{node},
		Slow:      true,
	})
}

// A node can have a pool of files and a pool of logical volumes.
func TestPoolsOfTwoKinds(t *testing.T) {
	for _, groupFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("groupFirst=%t", groupFirst), func(t *testing.T) { testPoolsOfTwoKinds(t, groupFirst) })
	}
}

func testPoolsOfTwoKinds(t *testing.T, groupFirst bool) {
	host := lvm.New(3 * gib)
	group := groupPool(t, host)
	group.Name = "fast"
	pools := []pool.Config{at(t, t.TempDir()), group}
	if groupFirst {
		slices.Reverse(pools)
	}
	l := openGroup(t, pools...)
	fast := []cloud.Parameter{{Name: local.ParamPool, Value: "fast"}}
	file := create(t, l, "file")
	req := cloud.CreateVolumeRequest{Name: "group", Size: size, Parameters: fast}
	vol, err := l.CreateVolume(t.Context(), req)
	if err != nil || host.Volume(logicalVolume(vol.ID)) == nil {
		t.Fatalf("CreateVolume = %+v, %v", vol, err)
	}
	for _, want := range []cloud.Volume{file, vol} {
		if got, err := l.GetVolume(t.Context(), want.ID); err != nil || got.Device != want.Device || got.Name != want.Name {
			t.Errorf("GetVolume(%s) = %+v, %v, want %+v", want.ID, got, err, want)
		}
	}
	_, err = l.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "group", Size: size})
	wantKind(t, "the name of a logical volume for a file", err, fault.Conflict)
	_, err = l.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "file", Size: size, Parameters: fast})
	wantKind(t, "the name of a file for a logical volume", err, fault.Conflict)
	if n := len(host.Groups()[0].Volumes); n != 1 {
		t.Errorf("the volume group has %d logical volumes, want one", n)
	}
	_, err = l.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "copy", Size: size, Source: cloud.Source{Volume: vol.ID}})
	wantKind(t, "a copy into another pool", err, fault.InvalidArgument)

	_, err = l.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "copy", Size: size, Source: cloud.Source{Volume: vol.ID}, Parameters: fast})
	wantKind(t, "a copy in a volume group", err, fault.InvalidArgument)
	_, err = l.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: "snapshot", Volume: vol.ID})
	wantKind(t, "a snapshot in a volume group", err, fault.InvalidArgument)

	// The disk of the volume group is gone, which is not an empty pool.
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

func TestVolumeGroupOfANodeWithoutIt(t *testing.T) {
	host := lvm.New(gib)
	group := groupPool(t, host)
	group.Name, group.LVMDir = "fast", t.TempDir()
	l := openGroup(t, at(t, t.TempDir()), group)
	fast := []cloud.Parameter{{Name: local.ParamPool, Value: "fast"}}
	_, err := l.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "a", Size: size, Parameters: fast})
	wantKind(t, "CreateVolume in a pool that is not here", err, fault.Exhausted)
	if err := l.Check(t.Context()); err != nil {
		t.Errorf("Check = %v, want no error", err)
	}
}
