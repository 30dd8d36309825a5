package digitalocean

import (
	"fmt"
	"slices"
	"time"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// gib rounds a size up to what the cloud counts in.
func gib(size cloud.Bytes) int64 { return int64((size + cloud.GiB - 1) / cloud.GiB) }

// volumeOf translates a volume.
func volumeOf(v *godo.Volume) cloud.Volume {
	vol := cloud.Volume{
		ID:     cloud.VolumeID(v.ID),
		Name:   v.Name,
		Size:   cloud.Bytes(v.SizeGigaBytes) * cloud.GiB,
		Zone:   regionOf(v),
		Source: remote.SourceOf(v.Tags),
		Device: deviceOf(v.Name),
		Tags:   remote.ReadTags(v.Tags),
	}
	for _, droplet := range v.DropletIDs {
		vol.AttachedTo = append(vol.AttachedTo, nodeID(droplet))
	}
	slices.Sort(vol.AttachedTo)
	return vol
}

func regionOf(v *godo.Volume) string {
	if v.Region == nil {
		return ""
	}
	return v.Region.Slug
}

// deviceOf is how a droplet recognises the volume of this name: the disk says the name about itself.
func deviceOf(name string) cloud.Device {
	return cloud.Device{Name: devicePrefix + name, Serial: name}
}

// attachedTo reports whether the volume is a disk of the droplet.
func attachedTo(v *godo.Volume, droplet int) bool { return slices.Contains(v.DropletIDs, droplet) }

// snapshotOf translates a snapshot. There is no status: a snapshot that the cloud shows can be restored.
func snapshotOf(s *godo.Snapshot) (cloud.Snapshot, error) {
	created, err := time.Parse(time.RFC3339, s.Created)
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("snapshot %s: the cloud says that it was made at %q: %w", s.ID, s.Created, fault.Unavailable)
	}
	snap := cloud.Snapshot{
		ID:      cloud.SnapshotID(s.ID),
		Name:    s.Name,
		Volume:  cloud.VolumeID(s.ResourceID),
		Size:    cloud.Bytes(s.MinDiskSize) * cloud.GiB,
		Created: created,
		Ready:   true,
	}
	if len(s.Regions) > 0 {
		snap.Zone = s.Regions[0]
	}
	return snap, nil
}
