package controller

import (
	"context"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// namesOf are the names of a driver of Linode that is called so.
func namesOf(t *testing.T, driverName string) driver.Names {
	t.Helper()
	names, err := driver.NewNames("linode", profile.ScopeRegion, driverName, nil)
	expect.NoError(t, err)
	return names
}

// A vendor's driver writes the handle of one volume in two ways, and both mean the same volume.
func TestTwoSpellingsOfAHandleAreOneVolume(t *testing.T) {
	names := namesOf(t, "linodebs.csi.linode.com")
	s := New(memory.New(memory.Config{}), names)
	release, err := s.lockVolume("45-pvc0123")
	expect.NoError(t, err)
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
	names := namesOf(t, "linodebs.csi.linode.com")
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

// numbered is a cloud with one volume, which is degraded. It remembers the ids of the volumes that it was asked for.
type numbered struct {
	*memory.Cloud

	asked []cloud.VolumeID
}

var volume45 = cloud.Volume{ID: "45", Name: "pvc0123", Size: cloud.GiB, Health: cloud.Health{Kind: cloud.Degraded}}

// filesystem45 is the capability in the requests for it.
var filesystem45 = &csi.VolumeCapability{
	AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
}

func (c *numbered) GetVolume(_ context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	c.asked = append(c.asked, id)
	return volume45, nil
}

func (c *numbered) CreateVolume(_ context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	c.asked = append(c.asked, req.Source.Volume)
	return volume45, nil
}

func (c *numbered) ListVolumes(context.Context, cloud.Page) (cloud.VolumeList, error) {
	return cloud.VolumeList{Volumes: []cloud.Volume{volume45}}, nil
}

func (c *numbered) DeleteVolume(_ context.Context, id cloud.VolumeID) error {
	c.asked = append(c.asked, id)
	return nil
}

func (c *numbered) Attach(_ context.Context, id cloud.VolumeID, _ cloud.NodeID) (cloud.Device, error) {
	c.asked = append(c.asked, id)
	return cloud.Device{Name: "link", Serial: "serial"}, nil
}

func (c *numbered) Detach(_ context.Context, id cloud.VolumeID, _ cloud.NodeID) error {
	c.asked = append(c.asked, id)
	return nil
}

func (c *numbered) ExpandVolume(_ context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	c.asked = append(c.asked, id)
	return cloud.Expansion{Size: size}, nil
}

func (c *numbered) ModifyVolume(_ context.Context, id cloud.VolumeID, _ []cloud.Tag) error {
	c.asked = append(c.asked, id)
	return nil
}

// The cloud gets the id of a volume. An answer names the volume as the request does, and a list as the PersistentVolume does.
func TestTheCloudGetsIDsAndAnswersHaveHandles(t *testing.T) {
	for name, listed := range map[string]string{"": "45", "linodebs.csi.linode.com": "45-pvc0123"} {
		names := namesOf(t, name)
		c := &numbered{Cloud: memory.New(memory.Config{})}
		s := New(c, names)
		list, err := s.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{})
		if err != nil || len(list.GetEntries()) != 1 || list.GetEntries()[0].GetVolumeId() != listed {
			t.Errorf("ControllerListVolumeHealth = %v, %v, want that of %s", list, err, listed)
		}
		for _, handle := range []string{"45", "45-pvc0123", "45-an-older-name"} {
			asksByID(t, s, c, handle)
		}
	}
}

// C13: the attacher attaches a volume again and again while ListVolumes has another handle for it than its PersistentVolume.
func TestAListHasTheHandleOfTheAttachment(t *testing.T) {
	for _, name := range []string{"", "linodebs.csi.linode.com"} {
		names := namesOf(t, name)
		s := New(&numbered{Cloud: memory.New(memory.Config{})}, names)
		for _, handle := range []string{"45-an-older-name", "45", "45-pvc0123", "45"} {
			_, err := s.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: handle, NodeId: "1", VolumeCapability: filesystem45})
			expect.NoError(t, err)
			list, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
			if err != nil || list.GetEntries()[0].GetVolume().GetVolumeId() != handle {
				t.Errorf("%s: the list after an attachment of %s: %v, %v", names.Driver, handle, list, err)
			}
		}
	}
}

// asksByID makes every call for a volume.
func asksByID(t *testing.T, s *Service, c *numbered, handle string) {
	t.Helper()
	calls := map[string]func(ctx context.Context) error{
		"ControllerGetVolumeHealth": func(ctx context.Context) error {
			got, err := s.ControllerGetVolumeHealth(ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: handle})
			if err == nil && got.GetVolumeHealth().GetVolumeId() != handle {
				t.Errorf("ControllerGetVolumeHealth = %v, want that of %s", got, handle)
			}
			return err
		},
		"CreateVolume": func(ctx context.Context) error {
			got, err := s.CreateVolume(ctx, &csi.CreateVolumeRequest{
				Name: "copy", VolumeContentSource: contentSource(cloud.Source{Volume: cloud.VolumeID(handle)}), VolumeCapabilities: []*csi.VolumeCapability{filesystem45},
			})
			if source := got.GetVolume().GetContentSource().GetVolume().GetVolumeId(); err == nil && source != handle {
				t.Errorf("CreateVolume answers with a copy of %q, want %s", source, handle)
			}
			return err
		},
		"DeleteVolume": func(ctx context.Context) error {
			_, err := s.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: handle})
			return err
		},
		"ControllerPublishVolume": func(ctx context.Context) error {
			_, err := s.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: handle, NodeId: "1", VolumeCapability: filesystem45})
			return err
		},
		"ControllerUnpublishVolume": func(ctx context.Context) error {
			_, err := s.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: "1"})
			return err
		},
		"ControllerExpandVolume": func(ctx context.Context) error {
			_, err := s.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
				VolumeId: handle, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 << 30, LimitBytes: 3 << 30},
			})
			return err
		},
		"ControllerModifyVolume": func(ctx context.Context) error {
			_, err := s.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: handle, MutableParameters: map[string]string{"tags": "a=b"}})
			return err
		},
		"ControllerGetVolume": func(ctx context.Context) error {
			_, err := s.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: handle})
			return err
		},
		"ValidateVolumeCapabilities": func(ctx context.Context) error {
			_, err := s.ValidateVolumeCapabilities(ctx, &csi.ValidateVolumeCapabilitiesRequest{VolumeId: handle, VolumeCapabilities: []*csi.VolumeCapability{filesystem45}})
			return err
		},
	}
	for name, call := range calls {
		c.asked = nil
		if err := call(t.Context()); err != nil {
			t.Errorf("%s of %s = %v", name, handle, err)
		}
		if len(c.asked) == 0 || slices.ContainsFunc(c.asked, func(id cloud.VolumeID) bool { return id != "45" }) {
			t.Errorf("%s of %s asked the cloud for %q, want 45", name, handle, c.asked)
		}
	}
}
