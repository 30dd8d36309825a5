package digitalocean

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// throughSnapshots clones volumes through temporary snapshots.
func (c *Cloud) throughSnapshots(left *block.Leftovers) *block.Through[snapshot] {
	return &block.Through[snapshot]{
		Leftovers: left, Name: c.temporaryName, Delete: c.deleteSnapshot,
		ID: func(s snapshot) cloud.SnapshotID { return cloud.SnapshotID(s.ID) },
		Make: func(ctx context.Context, req cloud.CreateVolumeRequest) (snapshot, error) {
			words, err := c.userWords(nil)
			if err != nil {
				return snapshot{}, err
			}
			snap, err := c.takeSnapshot(ctx, req.Source.Volume, c.temporaryName(req.Name), words)
			if err != nil {
				return snapshot{}, err
			}
			return *snap, nil
		},
		Find: func(ctx context.Context, req cloud.CreateVolumeRequest) (snapshot, bool, error) {
			of, err := c.snapshotsOf(ctx, req.Source.Volume)
			at := slices.IndexFunc(of, func(s snapshot) bool { return s.Name == c.temporaryName(req.Name) })
			if err != nil || at < 0 {
				return snapshot{}, false, err
			}
			return of[at], true, nil
		},
	}
}

// restoreCopy creates the volume of a clone from its temporary snapshot.
func (c *Cloud) restoreCopy(ctx context.Context, req cloud.CreateVolumeRequest, body godo.VolumeCreateRequest, zones []string, snap snapshot) (cloud.Volume, error) {
	doing := fmt.Sprintf("create volume %q as a copy of volume %s", req.Name, req.Source.Volume)
	body.SnapshotID = snap.ID
	there := slices.DeleteFunc(slices.Clone(zones), func(zone string) bool { return !slices.Contains(snap.Regions, zone) })
	if len(there) == 0 {
		return cloud.Volume{}, fmt.Errorf("%s: it is in %q and cannot be copied to any of %q: %w", doing, snap.Regions, zones, fault.SourceElsewhere)
	}
	vol, err := c.createIn(ctx, doing, body, there)
	if err != nil {
		return cloud.Volume{}, err
	}
	return volumeOf(vol), nil
}

// Sweep deletes temporary snapshots of this cluster, whose clones were interrupted and never requested again.
func (c *Cloud) Sweep(ctx context.Context) error {
	all, err := c.allSnapshots(ctx, budget.List)
	if err != nil {
		return err
	}
	var left []block.Leftover
	for _, s := range all {
		if c.isTemporary(&s) {
			created, err := time.Parse(time.RFC3339, s.Created)
			left = append(left, c.clones.Leftover(s, s.Name, created, err != nil))
		}
	}
	return c.clones.Sweep(ctx, left)
}
