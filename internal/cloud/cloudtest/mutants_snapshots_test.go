package cloudtest_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

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

// snapshotMutants are broken backends too: in what they do with snapshots, places and health.
var snapshotMutants = map[string]mutation{
	"adopts another volume's snapshot": {caught: "a name that is taken is fault.Conflict", breaks: mutant{
		createSnapshots: func(good cloud.Cloud, ctx context.Context, req cloud.CreateSnapshotsRequest) ([]cloud.Snapshot, error) {
			if found, err := good.FindSnapshots(ctx, req.Name); err == nil {
				return found, nil
			}
			return good.CreateSnapshots(ctx, req)
		}}},
	"snapshots the first volume of a group only": {caught: "one snapshot of each volume", breaks: mutant{
		createSnapshots: func(good cloud.Cloud, ctx context.Context, req cloud.CreateSnapshotsRequest) ([]cloud.Snapshot, error) {
			req.Volumes = req.Volumes[:min(1, len(req.Volumes))]
			return good.CreateSnapshots(ctx, req)
		}}},
	"snapshots a group one after the other": {caught: "all of the same instant", breaks: mutant{
		createSnapshots: func(good cloud.Cloud, ctx context.Context, req cloud.CreateSnapshotsRequest) ([]cloud.Snapshot, error) {
			snaps, err := good.CreateSnapshots(ctx, req)
			for i := range snaps {
				snaps[i].Created = snaps[i].Created.Add(time.Duration(i) * time.Second)
			}
			return snaps, err
		}}},
	"leaves half a group behind": {caught: "one of the volumes does not exist, and nothing is left", breaks: mutant{
		createSnapshots: func(good cloud.Cloud, ctx context.Context, req cloud.CreateSnapshotsRequest) ([]cloud.Snapshot, error) {
			snaps, err := good.CreateSnapshots(ctx, req)
			if errors.Is(err, fault.NotFound) && len(req.Volumes) > 1 {
				req.Volumes = req.Volumes[:1]
				_, _ = good.CreateSnapshots(ctx, req)
			}
			return snaps, err
		}}},
	"makes a group of whatever is fit": {caught: "one instant now, and nothing is left", breaks: mutant{
		createSnapshots: func(good cloud.Cloud, ctx context.Context, req cloud.CreateSnapshotsRequest) ([]cloud.Snapshot, error) {
			snaps, err := good.CreateSnapshots(ctx, req)
			if errors.Is(err, fault.Precondition) && len(req.Volumes) > 1 {
				req.Volumes = req.Volumes[:1]
				return good.CreateSnapshots(ctx, req)
			}
			return snaps, err
		}}},
	"answers a group in the order that it likes": {caught: "in the order of the request", breaks: mutant{
		createSnapshots: func(good cloud.Cloud, ctx context.Context, req cloud.CreateSnapshotsRequest) ([]cloud.Snapshot, error) {
			snaps, err := good.CreateSnapshots(ctx, req)
			slices.SortFunc(snaps, func(a, b cloud.Snapshot) int { return strings.Compare(string(a.Volume), string(b.Volume)) })
			return snaps, err
		}}},
	"makes a second group of one name": {caught: "many creates of one group", breaks: mutant{
		createSnapshots: func(good cloud.Cloud, ctx context.Context, req cloud.CreateSnapshotsRequest) ([]cloud.Snapshot, error) {
			snaps, err := good.CreateSnapshots(ctx, req)
			if errors.Is(err, fault.Conflict) {
				list, _ := good.ListSnapshots(ctx, "", cloud.Page{})
				req.Name += strconv.Itoa(len(list.Snapshots))
				return good.CreateSnapshots(ctx, req)
			}
			return snaps, err
		}}},
	"deletes a whole group with one of it": {caught: "what still exists of it", breaks: mutant{
		deleteSnapshot: func(good cloud.Cloud, ctx context.Context, id cloud.SnapshotID) error {
			gone, _ := good.GetSnapshot(ctx, id)
			list, _ := good.ListSnapshots(ctx, "", cloud.Page{})
			for _, snap := range list.Snapshots {
				if snap.Group != "" && snap.Group == gone.Group {
					_ = good.DeleteSnapshot(ctx, snap.ID)
				}
			}
			return good.DeleteSnapshot(ctx, id)
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
	"has groups without snapshots": {caught: "only where there are snapshots", breaks: mutant{
		capabilities: func(good cloud.Capabilities) cloud.Capabilities { good.Snapshots = false; return good }}},
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
