package main

import (
	"context"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/controller"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
)

// stack is the whole controller with all decorators, on a real socket over an in-memory cloud.
type stack struct {
	csi.ControllerClient

	cloud *memory.Cloud
}

func startStack(t *testing.T, cfg memory.Config) *stack {
	t.Helper()
	names, err := driver.NewNames("memory", profile.ScopeZone, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &stack{cloud: memory.New(cfg)}
	decorated := middleware.Stack(s.cloud, wait.Backoff{})
	service := controller.New(decorated, names)
	conn := drivertest.Serve(t, driver.Config{Names: names, Features: service.Features()},
		func(r grpc.ServiceRegistrar) { csi.RegisterControllerServer(r, service) })
	s.ControllerClient = csi.NewControllerClient(conn)
	return s
}

func (s *stack) volumes(t *testing.T) int {
	t.Helper()
	list, err := s.cloud.ListVolumes(t.Context(), cloud.Page{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Volumes)
}

func (s *stack) snapshots(t *testing.T) int {
	t.Helper()
	list, err := s.cloud.ListSnapshots(t.Context(), "", cloud.Page{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Snapshots)
}

// sources creates a volume of 3 GiB and returns it and a snapshot of it as content sources.
func (s *stack) sources(t *testing.T) map[string]*csi.VolumeContentSource {
	t.Helper()
	vol, err := s.CreateVolume(t.Context(), createRequest("origin"))
	if err != nil {
		t.Fatal(err)
	}
	id := vol.GetVolume().GetVolumeId()
	snap, err := s.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "snap", SourceVolumeId: id})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*csi.VolumeContentSource{
		"restore": {Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snap.GetSnapshot().GetSnapshotId()},
		}},
		"clone": {Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id}}},
	}
}

// C2, C3 and C5: a copy to a larger size whose growth fails is completed by the repeat of the request. The answer is that of an
// undisturbed copy, with the actual size of the volume.
func TestACopyToALargerSizeIsFinishedByARepeat(t *testing.T) {
	s := startStack(t, memory.Config{})
	for name, source := range s.sources(t) {
		before := s.volumes(t)
		req := createRequest(name)
		req.CapacityRange.RequiredBytes = int64(7 * cloud.GiB)
		req.VolumeContentSource = source
		s.cloud.Account().Arm(memory.CallCreateVolume, memory.HalfRestore())
		s.cloud.Account().Arm(memory.CallExpandVolume, memory.LoseRequest())
		_, err := s.CreateVolume(t.Context(), req)
		if status.Code(err) != codes.Unavailable {
			t.Fatalf("%s whose growth fails: %v, want Unavailable", name, err)
		}
		got, err := s.CreateVolume(t.Context(), req)
		if err != nil {
			t.Fatalf("%s again: %v", name, err)
		}
		again, err := s.CreateVolume(t.Context(), req)
		if err != nil || !proto.Equal(got, again) {
			t.Errorf("%s a third time = %v, %v, want %v", name, again, err, got)
		}
		vol := got.GetVolume()
		real, err := s.cloud.GetVolume(t.Context(), cloud.VolumeID(vol.GetVolumeId()))
		if err != nil || real.Size != 7*cloud.GiB || vol.GetCapacityBytes() != int64(real.Size) {
			t.Errorf("%s answered %d bytes, the cloud has %s, %v, want 7 GiB", name, vol.GetCapacityBytes(), real.Size, err)
		}
		if !proto.Equal(vol.GetContentSource(), source) || len(vol.GetAccessibleTopology()) != 1 {
			t.Errorf("%s answered the source %v and the topology %v", name, vol.GetContentSource(), vol.GetAccessibleTopology())
		}
		if n := s.volumes(t); n != before+1 {
			t.Errorf("%s made %d volumes, want one", name, n-before)
		}
	}
}

// C8: a snapshot whose caller has gone is found by the repeat and can be deleted; a delete of an unknown snapshot is OK.
func TestSnapshotsOfACallerThatIsGone(t *testing.T) {
	s := startStack(t, memory.Config{})
	s.sources(t)
	list, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	id := list.GetEntries()[0].GetVolume().GetVolumeId()
	before := s.snapshots(t)
	create := func(ctx context.Context) (string, error) {
		answer, err := s.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "late", SourceVolumeId: id})
		return answer.GetSnapshot().GetSnapshotId(), err
	}
	s.cloud.Account().Arm(memory.CallCreateSnapshot, memory.HoldAnswer(make(chan struct{})))
	gone, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := create(gone)
		answered <- err
	}()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for s.snapshots(t) == before && len(answered) == 0 { // until the cloud has created it
		<-tick.C
	}
	cancel()
	if err := <-answered; err == nil {
		t.Error("a snapshot whose answer is held back was answered")
	}
	var made string
	for { // until the abandoned call has released the name
		made, err = create(t.Context())
		if status.Code(err) != codes.Aborted {
			break
		}
		<-tick.C
	}
	again, againErr := create(t.Context())
	if err != nil || againErr != nil || made != again {
		t.Errorf("the snapshot = %q, %v, then %q, %v, want the same twice", made, err, again, againErr)
	}
	if n := s.snapshots(t); n != before+1 {
		t.Errorf("there are %d snapshots, want %d", n, before+1)
	}
	for range 2 {
		if _, err := s.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: "snap-of-nobody"}); err != nil {
			t.Errorf("DeleteSnapshot of an unknown id: %v", err)
		}
	}
}
