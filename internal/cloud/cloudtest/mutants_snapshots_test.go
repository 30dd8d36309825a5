package cloudtest_test

import (
	"context"
	"errors"
	"strconv"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// zoned returns the capabilities of a cloud whose snapshots are bound to their zones.
func zoned() cloud.Capabilities {
	caps := memory.Full()
	caps.SnapshotZones = true
	return caps
}

// snapshotMutants are broken backends too: they are wrong about snapshots, places or health.
var snapshotMutants = map[string]mutation{
	"adopts another volume's snapshot": {caught: "a name that is taken is fault.Conflict", breaks: mutant{
		createSnapshot: func(good cloud.Cloud, ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
			if found, err := good.FindSnapshot(ctx, req.Name); err == nil {
				return found, nil
			}
			return good.CreateSnapshot(ctx, req)
		}}},
	"calls a volume that is not fit unavailable": {caught: "cannot be snapshotted now", breaks: mutant{
		createSnapshot: func(good cloud.Cloud, ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
			snap, err := good.CreateSnapshot(ctx, req)
			if errors.Is(err, fault.Precondition) {
				err = fault.Unavailable
			}
			return snap, err
		}}},
	"makes a second snapshot of one name": {caught: "many creates of one snapshot at once", breaks: mutant{
		createSnapshot: func(good cloud.Cloud, ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
			snaps, err := good.CreateSnapshot(ctx, req)
			if errors.Is(err, fault.Conflict) {
				list, _ := good.ListSnapshots(ctx, "", cloud.Page{})
				req.Name += strconv.Itoa(len(list.Snapshots))
				return good.CreateSnapshot(ctx, req)
			}
			return snaps, err
		}}},
	"restores a bound snapshot everywhere": {caught: "names its only zone", shape: memory.Config{Capabilities: zoned()}, breaks: mutant{
		createVolume: func(good cloud.Cloud, ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
			asked := req.Zones
			if req.Source.Snapshot != "" {
				req.Zones = nil
			}
			vol, err := good.CreateVolume(ctx, req)
			if len(asked) > 0 {
				vol.Zone = asked[0]
			}
			return vol, err
		}}},
	"lists no ill health": {caught: "in GetVolume and ListVolumes", breaks: mutant{
		listVolumes: func(good cloud.Cloud, ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
			list, err := good.ListVolumes(ctx, page)
			for i := range list.Volumes {
				list.Volumes[i].Health = cloud.Health{}
			}
			return list, err
		}}},
	"tells a health that it says it cannot": {caught: "where Capabilities.Health says so", breaks: mutant{
		capabilities: func(good cloud.Capabilities) cloud.Capabilities { good.Health = false; return good }}},
	"forgets another place's volume": {caught: "fault.Precondition and names that place", shape: memory.Config{Places: []string{"island"}}, breaks: mutant{
		deleteVolume: func(good cloud.Cloud, ctx context.Context, id cloud.VolumeID) error {
			if _, err := good.GetVolume(ctx, id); errors.Is(err, fault.NotFound) {
				return nil
			}
			return good.DeleteVolume(ctx, id)
		}}},
	"does not know another place's snapshot": {caught: "fault.Exhausted and names that place", shape: memory.Config{Places: []string{"island"}}, breaks: mutant{
		createVolume: func(good cloud.Cloud, ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
			vol, err := good.CreateVolume(ctx, req)
			if errors.Is(err, fault.Exhausted) && req.Source.Snapshot != "" {
				return vol, fault.NotFound
			}
			return vol, err
		}}},
	"deletes what was restored too": {caught: "volumes restored from it live on", breaks: mutant{
		deleteSnapshot: func(good cloud.Cloud, ctx context.Context, id cloud.SnapshotID) error {
			for _, vol := range all(ctx, good) {
				if vol.Source.Snapshot == id {
					_ = good.DeleteVolume(ctx, vol.ID)
				}
			}
			return good.DeleteSnapshot(ctx, id)
		}}},
}
