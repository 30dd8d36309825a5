package controller

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// tokenLimit is far above the length of any backend's tokens.
const tokenLimit = 1024

// maxPage is the maximum number of entries of a page. An entry has less than 800 bytes, and the sidecars refuse an answer of more than
// 4 MiB, gRPC's default. The attacher asks for a page of any length, and without the whole list it compares no attachment.
const maxPage = 5000

// page returns the paging fields that all list calls have.
func page(req interface {
	GetMaxEntries() int32
	GetStartingToken() string
}) (cloud.Page, error) {
	if req.GetMaxEntries() < 0 {
		return cloud.Page{}, fmt.Errorf("max_entries: %d is negative: %w", req.GetMaxEntries(), fault.InvalidArgument)
	}
	if len(req.GetStartingToken()) > tokenLimit {
		return cloud.Page{}, fmt.Errorf("starting_token: longer than any that was given out: %w", fault.StalePage)
	}
	most := int(req.GetMaxEntries())
	if most == 0 || most > maxPage {
		most = maxPage
	}
	return cloud.Page{Token: req.GetStartingToken(), Most: most}, nil
}

// ListVolumes returns one page of all volumes that the credentials may see.
func (s *Service) ListVolumes(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	at, err := page(req)
	if err != nil {
		return nil, err
	}
	list, err := s.cloud.ListVolumes(ctx, at)
	if err != nil {
		return nil, err
	}
	answer := &csi.ListVolumesResponse{NextToken: list.Next}
	for _, v := range list.Volumes {
		answer.Entries = append(answer.Entries, &csi.ListVolumesResponse_Entry{
			Volume: s.volume(v),
			Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodeIDs(v.AttachedTo)},
		})
	}
	return answer, nil
}

// ListSnapshots returns one page of all snapshots, of one volume's, or the snapshot with an id. For an id that does not exist the
// list is empty. It omits the temporary snapshots of clones, which no request has asked for.
func (s *Service) ListSnapshots(ctx context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	if err := need(s.caps.Snapshots, "ListSnapshots"); err != nil {
		return nil, err
	}
	at, err := page(req)
	if err != nil {
		return nil, err
	}
	if req.GetSourceVolumeId() != "" {
		if err := driver.CheckVolumeID("source_volume_id", req.GetSourceVolumeId()); err != nil {
			return nil, err
		}
	}
	of := s.volumeID(req.GetSourceVolumeId())
	if req.GetSnapshotId() != "" {
		return s.listOneSnapshot(ctx, req.GetSnapshotId(), of)
	}
	list, err := s.cloud.ListSnapshots(ctx, of, at)
	if err != nil {
		return nil, err
	}
	answer := &csi.ListSnapshotsResponse{NextToken: list.Next}
	for _, snap := range list.Snapshots {
		if snap.Mark.Temporary {
			continue
		}
		answer.Entries = append(answer.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: s.snapshot(snap)})
	}
	return answer, nil
}

func (s *Service) listOneSnapshot(ctx context.Context, id string, of cloud.VolumeID) (*csi.ListSnapshotsResponse, error) {
	if err := driver.CheckSnapshotID("snapshot_id", id); err != nil {
		return nil, err
	}
	snap, err := s.cloud.GetSnapshot(ctx, cloud.SnapshotID(id))
	switch {
	case err != nil && goneForSure(err), err == nil && of != "" && snap.Volume != of:
		return &csi.ListSnapshotsResponse{}, nil
	case err != nil:
		return nil, err
	}
	return &csi.ListSnapshotsResponse{Entries: []*csi.ListSnapshotsResponse_Entry{{Snapshot: s.snapshot(snap)}}}, nil
}

// GetCapacity returns the available space. A place that this cloud does not serve has none.
func (s *Service) GetCapacity(ctx context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if err := need(s.caps.Capacity, "GetCapacity"); err != nil {
		return nil, err
	}
	if len(req.GetVolumeCapabilities()) > 0 {
		if err := driver.CheckCapabilities("volume_capabilities", req.GetVolumeCapabilities()); err != nil {
			return nil, err
		}
	}
	params, err := s.parseVolumeParameters(withoutSidecars(req.GetParameters()))
	if err != nil {
		return nil, err
	}
	zone := ""
	if topology := req.GetAccessibleTopology(); topology != nil {
		var ours bool
		if zone, ours = s.names.Zone(topology.GetSegments()); !ours {
			return s.capacity(0), nil
		}
		if err := driver.CheckSegment("accessible_topology", zone); err != nil {
			return nil, err
		}
	}
	free, err := s.cloud.Capacity(ctx, zone, params.backend)
	if err != nil && !goneForSure(err) {
		return nil, err
	}
	return s.capacity(free), nil
}

// withoutSidecars returns the parameters of a class without those for the sidecars, such as the names of Secrets. The provisioner takes
// them out for CreateVolume, but not for GetCapacity.
func withoutSidecars(class map[string]string) map[string]string {
	own := maps.Clone(class)
	maps.DeleteFunc(own, func(name, _ string) bool { return strings.HasPrefix(name, "csi.storage.k8s.io/") })
	return own
}

// capacity also sets the maximum size of a volume. If it is set, the Kubernetes scheduler compares a PersistentVolumeClaim only
// with it, so it must not exceed the available space.
func (s *Service) capacity(free cloud.Bytes) *csi.GetCapacityResponse {
	largest := min(free, s.caps.LargestVolume)
	return &csi.GetCapacityResponse{
		AvailableCapacity: int64(free),
		MaximumVolumeSize: wrapperspb.Int64(int64(largest - largest%s.caps.SizeStep)),
		MinimumVolumeSize: wrapperspb.Int64(int64(s.caps.SmallestVolume)),
	}
}
