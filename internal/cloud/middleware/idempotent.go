// Package middleware adds to a cloud.Cloud what every backend needs and none should contain: idempotency and retry. Each decorator
// embeds the Cloud that it wraps and overrides only the methods that it changes; Stack wraps them in the right order.
package middleware

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Stack wraps a backend in Retry and that in Idempotent, so that Retry's repeat of a read is not a second call for Idempotent. The
// backoff is Retry's; without Tries it is DefaultBackoff.
func Stack(c cloud.Cloud, backoff wait.Backoff) cloud.Cloud {
	return NewIdempotent(NewRetry(c, backoff))
}

// Idempotent makes repeated creates converge, as CSI requires. It writes first: in the usual case the name is free and no read is
// needed.
//
// Its errors are final only if a read proved them or the request alone decides them. After a final error the caller forgets the
// name, so none may be returned while an object of an earlier call may exist: after a write that may have taken effect, and after a
// refusal because of the state (no space, no right) that the cloud checked before the name. All other errors are fault.Uncertain.
type Idempotent struct {
	cloud.Cloud

	volumes, snapshots doubts
}

// NewIdempotent wraps c.
func NewIdempotent(c cloud.Cloud) *Idempotent { return &Idempotent{Cloud: c} }

// CreateVolume returns the volume that an earlier call with this name created, if it fits. It grows a copy that an earlier call
// left smaller than requested, so a restore to a larger size can be repeated from any point.
func (c *Idempotent) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	found, err := c.Cloud.CreateVolume(ctx, req)
	switch {
	case err == nil && req.FitsExisting(found):
		return found, nil
	case err == nil: // it is the result of an earlier call that goes on
	case !unsettled(err):
		return cloud.Volume{}, err
	default:
		var findErr error
		if found, findErr = c.FindVolume(ctx, req.Name); findErr != nil { // it waits until the volume is ready, like a create
			return cloud.Volume{}, c.volumes.unresolved("create volume", req.Name, err, findErr)
		}
	}
	c.volumes.settle(req.Name)
	if c.growable(req, found) {
		exp, expErr := c.ExpandVolume(ctx, found.ID, req.Size)
		if expErr != nil {
			// A final kind would leave the incomplete copy behind. The copy is not deleted, because it may be in use.
			return cloud.Volume{}, fmt.Errorf("create volume %q: grow the copy %s from %s to %s: %w: %w",
				req.Name, found.ID, found.Size, req.Size, fault.Uncertain, expErr)
		}
		found.Size = exp.Size
	}
	if !req.FitsExisting(found) {
		return cloud.Volume{}, fmt.Errorf("volume %q exists as %s: %w: %s", req.Name, found.ID, fault.Conflict, difference(req, found))
	}
	return found, nil
}

// CreateSnapshot returns the snapshot that an earlier call with this name created, if it is one of this volume.
func (c *Idempotent) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	found, err := c.Cloud.CreateSnapshot(ctx, req)
	switch {
	case err == nil && found.Volume == req.Volume:
		return found, nil
	case err == nil: // it is the result of an earlier call that goes on
	case !unsettled(err):
		return cloud.Snapshot{}, err
	default:
		var findErr error
		if found, findErr = c.FindSnapshot(ctx, req.Name); findErr != nil {
			return cloud.Snapshot{}, c.snapshots.unresolved("create snapshot", req.Name, err, findErr)
		}
	}
	c.snapshots.settle(req.Name)
	if found.Volume != req.Volume {
		return cloud.Snapshot{}, fmt.Errorf("snapshot %q exists as %s: %w: it is of volume %s, asked for is volume %s",
			req.Name, found.ID, fault.Conflict, found.Volume, req.Volume)
	}
	return found, nil
}

// refusals are the final kinds that depend on the state and not on the request alone: an earlier call with this name may have had
// another outcome. refusalsOfCloud are final kinds that do so only if they come from the cloud and not from the driver's own check
// of the request: the cloud may refuse because of the state.
var (
	refusals        = []fault.Kind{fault.Exhausted, fault.Denied, fault.NotFound, fault.Precondition, fault.OutOfRange}
	refusalsOfCloud = []fault.Kind{fault.InvalidArgument, fault.Unsupported}
)

// refused reports whether err is such a refusal.
func refused(err error) bool {
	kind := fault.Of(err)
	return slices.Contains(refusals, kind) || slices.Contains(refusalsOfCloud, kind) && fault.FromCloud(err)
}

// unsettled reports whether only a read of the object with the name shows the outcome of a create.
func unsettled(err error) bool {
	kind := fault.Of(err)
	return kind == fault.Conflict || kind == fault.Uncertain || refused(err)
}

// unresolved returns the error of a create whose object was not found, or could not be read.
func (d *doubts) unresolved(what, name string, err, findErr error) error {
	created, looked := fault.Of(err), fault.Of(findErr)
	switch {
	case refused(err) && (looked == fault.Conflict || looked == fault.NotFound && !d.has(name)):
		return err // no object with this name is this cluster's, so none can be forgotten
	case created == fault.Exhausted && errors.Is(findErr, fault.PoolUnusable) && !d.has(name):
		return err // a pool looks for the name before it refuses, and no create looks for it in another one that is missing
	case created == fault.Conflict && looked == fault.Conflict:
		return fmt.Errorf("%s %q: %w", what, name, findErr) // the create and the read agree that the name belongs to another owner
	case !refused(err):
		d.add(name)
	}
	// After a write, not found proves nothing: the write may still take effect, or the read may be stale.
	return fmt.Errorf("%s %q: %w: %w", what, name, fault.Uncertain, errors.Join(err, findErr))
}

// growable reports whether the volume is a copy that may have to grow. A copy with a sufficient size may still be growing, and the
// growth may fail; ExpandVolume detects that.
func (c *Idempotent) growable(req cloud.CreateVolumeRequest, found cloud.Volume) bool {
	return !req.Source.Blank() && req.FitsButForSize(found) && c.Capabilities().Expand
}

// difference describes why a volume does not fit, for the operator, who has to choose another name.
func difference(req cloud.CreateVolumeRequest, found cloud.Volume) string {
	var parts []string
	if found.Size < req.Size || req.Limit > 0 && found.Size > req.Limit {
		parts = append(parts, fmt.Sprintf("its size is %s, asked for are %s", found.Size, sizes(req)))
	}
	if found.Source != req.Source {
		parts = append(parts, fmt.Sprintf("it is %s, asked for is one that is %s", source(found.Source), source(req.Source)))
	}
	if !(cloud.CreateVolumeRequest{Zones: req.Zones}).FitsButForSize(cloud.Volume{Zone: found.Zone}) {
		parts = append(parts, fmt.Sprintf("it is in %s, asked for is %s", found.Zone, strings.Join(req.Zones, " or ")))
	}
	if len(parts) == 0 {
		parts = append(parts, "its parameters differ")
	}
	return strings.Join(parts, "; ")
}

func sizes(req cloud.CreateVolumeRequest) string {
	if req.Limit > 0 {
		return fmt.Sprintf("%s to %s", req.Size, req.Limit)
	}
	return fmt.Sprintf("%s or more", req.Size)
}

func source(s cloud.Source) string {
	switch {
	case s.Snapshot != "":
		return "restored from snapshot " + string(s.Snapshot)
	case s.Volume != "":
		return "a copy of volume " + string(s.Volume)
	default:
		return "blank"
	}
}

// doubtful is how long after a create a list may not show its object.
const doubtful = 2 * time.Minute

// doubts has the names of creates with an unknown outcome, and since when. A list without such a name may be older than the create.
// Correctness does not depend on it: another controller has its own.
type doubts struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// add adds a name and removes expired ones.
func (d *doubts) add(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.since, func(_ string, since time.Time) bool { return time.Since(since) > doubtful })
	if d.since == nil {
		d.since = map[string]time.Time{}
	}
	d.since[name] = time.Now()
}

// settle removes a name, whose outcome is now known.
func (d *doubts) settle(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.since, name)
}

func (d *doubts) has(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, found := d.since[name]
	return found && time.Since(since) <= doubtful
}
