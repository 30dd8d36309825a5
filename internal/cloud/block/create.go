package block

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// CheckCreate refuses a request that the cloud cannot serve in any account. It returns the zones of the request that the cloud can have,
// or the backend's zone for a request without zones; fault.NoZone if none is left.
func (b *Verbs) CheckCreate(req cloud.CreateVolumeRequest, caps cloud.Capabilities, own string) (zones []string, err error) {
	zones = []string{own}
	if len(req.Zones) > 0 {
		zones = slices.DeleteFunc(slices.Clone(req.Zones), func(zone string) bool { return !b.traits.Zone(zone) })
	}
	switch source := req.Source; {
	case req.Name == "":
		return nil, fmt.Errorf("it has no name: %w", fault.InvalidArgument)
	case req.Size > b.traits.Largest:
		return nil, fmt.Errorf("%s is more than %d GiB, the largest %s: %w", req.Size, b.traits.Largest/cloud.GiB, b.traits.VolumeWord, fault.OutOfRange)
	case source.Snapshot != "" && !caps.Snapshots:
		return nil, fmt.Errorf("from snapshot %.80q: this cloud has no snapshots: %w", source.Snapshot, fault.InvalidArgument)
	case source.Volume != "" && !caps.Clones:
		return nil, fmt.Errorf("from volume %.80q: this cloud has no clones: %w", source.Volume, fault.InvalidArgument)
	case source.Snapshot != "" && !b.traits.SnapshotID(source.Snapshot):
		return nil, fmt.Errorf("snapshot %.80q: %w: no snapshot has such an id", source.Snapshot, fault.NotFound)
	case source.Volume != "" && !b.traits.VolumeID(source.Volume):
		return nil, fmt.Errorf("source %s %.80q: %w: no %s has such an id", b.traits.VolumeWord, source.Volume, fault.NotFound, b.traits.VolumeWord)
	case len(zones) == 0:
		return nil, fmt.Errorf("none of %q is a zone: %w", req.Zones, fault.NoZone)
	}
	return zones, nil
}

// CheckSnapshot refuses the request of a snapshot that the cloud cannot serve in any account.
func (b *Verbs) CheckSnapshot(req cloud.CreateSnapshotRequest) error {
	switch {
	case req.Name == "":
		return fmt.Errorf("it has no name: %w", fault.InvalidArgument)
	case !b.traits.VolumeID(req.Volume):
		return fmt.Errorf("volume %.80q: %w: no %s has such an id", req.Volume, fault.NotFound, b.traits.VolumeWord)
	}
	return nil
}

// InZones creates a volume in the first zone that can serve it. It tries the next zone if create returns fault.NoZone.
func InZones[V any](zones []string, create func(zone string) (V, error)) (v V, err error) {
	for _, zone := range zones {
		if v, err = create(zone); !errors.Is(err, fault.NoZone) {
			return v, err
		}
	}
	return v, fmt.Errorf("none of the zones %s can serve it: %w", strings.Join(zones, ", "), err)
}

// Create creates a volume with the cloud's name for it, in one zone, and waits until it is ready. If the operation fails, Create deletes
// what it has left; a refusal leaves nothing and is returned. doing is the create in errors. send sends one request, and returns the volume
// and its id as the answer shows them and the id of the operation, or "" if the volume is ready.
func Create[V any](ctx context.Context, b *Verbs, doing, name string,
	send func(ctx context.Context, w *ops.Write) (v V, id cloud.VolumeID, operation string, err error),
) (V, error) {
	type answer struct {
		v  V
		id cloud.VolumeID
	}
	made, err := ops.Run(ctx, b.ops, ops.Op[answer]{
		Name: doing, Kind: "create", Object: "name " + name, Priority: budget.Write,
		Submit: func(ctx context.Context, w *ops.Write) (made answer, operation string, err error) {
			made.v, made.id, operation, err = send(ctx, w)
			return made, operation, err
		},
	})
	if err != nil && made.id != "" {
		err = b.TakeBack(ctx, made.id, err)
	}
	return made.v, err
}

// Find returns the object of a request among those with its name. fault.NotFound if there are none, fault.Conflict if they belong to
// others; called names them.
func Find[V any](request string, same []V, madeFor func(V) bool, called func(V) string) (v V, err error) {
	at := slices.IndexFunc(same, madeFor)
	switch {
	case at >= 0:
		return same[at], nil
	case len(same) > 0:
		return v, fmt.Errorf("find %q: %s has its name and was made for something else: %w", request, called(same[0]), fault.Conflict)
	}
	return v, fmt.Errorf("find %q: %w", request, fault.NotFound)
}
