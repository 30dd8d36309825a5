package controller

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// A vendor's driver writes the handle of one volume in two ways, and both mean the same volume.
func TestTwoSpellingsOfAHandleAreOneVolume(t *testing.T) {
	names, err := driver.NewNames("linode", profile.ScopeRegion, "linodebs.csi.linode.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := New(memory.New(memory.Config{}), names)
	release, err := s.lockVolume("45-pvc0123")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.lockVolume("45"); fault.Of(err) != fault.Busy {
		t.Errorf("a second change under the other spelling: %v, want %v", err, fault.Busy)
	}
	other, err := s.lockVolume("455")
	if err != nil {
		t.Errorf("a change of another volume: %v", err)
	} else {
		other()
	}
	release()
	if release, err = s.lockVolume("45"); err != nil {
		t.Errorf("a change after the first has ended: %v", err)
	} else {
		release()
	}
}

// snapshots is a cloud with snapshots and a parameter of them.
type snapshots struct {
	*memory.Cloud

	asked cloud.CreateSnapshotRequest
	of    cloud.VolumeID
}

func (*snapshots) Capabilities() cloud.Capabilities {
	return cloud.Capabilities{Snapshots: true, SnapshotParameters: []string{"consistency"}}
}

func (c *snapshots) CreateSnapshot(_ context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	c.asked = req
	return cloud.Snapshot{ID: "snap-1", Volume: req.Volume, Ready: true}, nil
}

func (c *snapshots) GetSnapshot(context.Context, cloud.SnapshotID) (cloud.Snapshot, error) {
	return cloud.Snapshot{ID: "snap-1", Volume: "45", Ready: true}, nil
}

func (c *snapshots) ListSnapshots(_ context.Context, of cloud.VolumeID, _ cloud.Page) (cloud.SnapshotList, error) {
	c.of = of
	return cloud.SnapshotList{}, nil
}

// A snapshot records the volume's id, and the answer to its request repeats the handle; the parameters of the cloud reach it.
func TestASnapshotIsOfTheVolumeInEitherSpelling(t *testing.T) {
	names, err := driver.NewNames("linode", profile.ScopeRegion, "linodebs.csi.linode.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &snapshots{Cloud: memory.New(memory.Config{})}
	s := New(c, names)
	const handle = "45-pvc0123"
	made, err := s.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{
		Name: "a", SourceVolumeId: handle, Parameters: map[string]string{"consistency": "detached", "tags": "team=a"},
	})
	if err != nil || c.asked.Volume != "45" || made.GetSnapshot().GetSourceVolumeId() != handle {
		t.Errorf("CreateSnapshot = %v, %v, and the cloud was asked for %+v", made, err, c.asked)
	}
	if want := (cloud.Parameter{Name: "consistency", Value: "detached"}); len(c.asked.Parameters) != 1 || c.asked.Parameters[0] != want {
		t.Errorf("the cloud got the parameters %v, want %v", c.asked.Parameters, want)
	}
	if _, err := s.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{SourceVolumeId: handle}); err != nil || c.of != "45" {
		t.Errorf("ListSnapshots lists those of %q (%v), want 45", c.of, err)
	}
	one, err := s.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{SourceVolumeId: handle, SnapshotId: "snap-1"})
	if err != nil || len(one.GetEntries()) != 1 {
		t.Errorf("ListSnapshots of one = %v, %v", one, err)
	}
	_, err = s.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "a", SourceVolumeId: handle, Parameters: map[string]string{"consistence": "detached"}})
	if fault.Of(err) != fault.InvalidArgument {
		t.Errorf("an unknown parameter: %v, want %v", err, fault.InvalidArgument)
	}
}

// numbered is a cloud with one volume, which is degraded.
type numbered struct{ *memory.Cloud }

var volume45 = cloud.Volume{ID: "45", Name: "pvc0123", Health: cloud.Health{Kind: cloud.Degraded}}

func (numbered) GetVolume(context.Context, cloud.VolumeID) (cloud.Volume, error) {
	return volume45, nil
}

func (numbered) CreateVolume(context.Context, cloud.CreateVolumeRequest) (cloud.Volume, error) {
	return volume45, nil
}

func (numbered) ListVolumes(context.Context, cloud.Page) (cloud.VolumeList, error) {
	return cloud.VolumeList{Volumes: []cloud.Volume{volume45}}, nil
}

// An answer names a volume as the request does, and a list as the PersistentVolume does.
func TestAnswersHaveTheHandle(t *testing.T) {
	names, err := driver.NewNames("linode", profile.ScopeRegion, "linodebs.csi.linode.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := New(numbered{memory.New(memory.Config{})}, names)
	list, err := s.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{})
	if err != nil || len(list.GetEntries()) != 1 || list.GetEntries()[0].GetVolumeId() != "45-pvc0123" {
		t.Errorf("ControllerListVolumeHealth = %v, %v, want that of 45-pvc0123", list, err)
	}
	for _, handle := range []string{"45", "45-pvc0123", "45-an-older-name"} {
		one, err := s.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: handle})
		if err != nil || one.GetVolumeHealth().GetVolumeId() != handle {
			t.Errorf("ControllerGetVolumeHealth = %v, %v, want that of %s", one, err, handle)
		}
		copied, err := s.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
			Name: "copy", VolumeContentSource: contentSource(cloud.Source{Volume: cloud.VolumeID(handle)}),
			VolumeCapabilities: []*csi.VolumeCapability{{
				AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			}},
		})
		if source := copied.GetVolume().GetContentSource().GetVolume().GetVolumeId(); err != nil || source != handle {
			t.Errorf("CreateVolume answers with a copy of %q (%v), want %s", source, err, handle)
		}
	}
}
