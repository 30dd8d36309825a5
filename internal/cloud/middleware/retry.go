package middleware

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Backoff says how often and after which pauses a call is repeated.
type Backoff struct {
	// Attempts is the largest number of calls, the first included.
	Attempts int
	// First is the pause after the first call; each later pause is twice the one before, up to Most.
	// Jitter takes up to half of it away.
	First, Most time.Duration
	// Rand returns a number in [0, 1) for the jitter; nil: a random one. A seeded one makes a run
	// repeatable.
	Rand func() float64
}

// DefaultBackoff bridges a short disturbance and leaves a long one to the caller's own repeats.
var DefaultBackoff = Backoff{Attempts: 4, First: 200 * time.Millisecond, Most: 2 * time.Second}

// Retry repeats calls that were answered fault.Unavailable, if a repeat is harmless: those that only
// read, and those that the contract says may be called twice (DeleteVolume, ExpandVolume, ModifyVolume,
// Detach, DeleteSnapshot). It never repeats a create, which is found by its name instead, and never an
// attach: between two of them somebody may have detached the volume on purpose.
type Retry struct {
	cloud.Cloud

	backoff Backoff
}

// NewRetry wraps c. A Backoff without Attempts means DefaultBackoff.
func NewRetry(c cloud.Cloud, backoff Backoff) *Retry {
	if backoff.Attempts == 0 {
		random := backoff.Rand
		backoff = DefaultBackoff
		backoff.Rand = random
	}
	if backoff.Rand == nil {
		backoff.Rand = rand.Float64
	}
	return &Retry{Cloud: c, backoff: backoff}
}

// pause waits before attempt n+1 and reports whether there is to be one. A context that would end
// during the pause ends the attempts at once: the caller gets the cause and not a spent deadline.
func (b Backoff) pause(ctx context.Context, n int) bool {
	if n >= b.Attempts {
		return false
	}
	wait := b.First
	for range n - 1 {
		wait = min(2*wait, b.Most)
	}
	wait -= time.Duration(b.Rand() * float64(wait/2))
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// retry calls until the answer is final. It returns the last answer as it came.
func retry[T any](ctx context.Context, b Backoff, call func() (T, error)) (T, error) {
	for n := 1; ; n++ {
		answer, err := call()
		if fault.Of(err) != fault.Unavailable || !b.pause(ctx, n) {
			return answer, err
		}
	}
}

// retryErr is retry for calls that only fail or not.
func retryErr(ctx context.Context, b Backoff, call func() error) error {
	_, err := retry(ctx, b, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// Capacity is repeated: it only reads.
func (r *Retry) Capacity(ctx context.Context, zone string, class []cloud.Parameter) (cloud.Bytes, error) {
	return retry(ctx, r.backoff, func() (cloud.Bytes, error) { return r.Cloud.Capacity(ctx, zone, class) })
}

// Check is repeated: it only reads.
func (r *Retry) Check(ctx context.Context) error {
	return retryErr(ctx, r.backoff, func() error { return r.Cloud.Check(ctx) })
}

// FindVolume is repeated: it only reads.
func (r *Retry) FindVolume(ctx context.Context, name string) (cloud.Volume, error) {
	return retry(ctx, r.backoff, func() (cloud.Volume, error) { return r.Cloud.FindVolume(ctx, name) })
}

// GetVolume is repeated: it only reads.
func (r *Retry) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	return retry(ctx, r.backoff, func() (cloud.Volume, error) { return r.Cloud.GetVolume(ctx, id) })
}

// DeleteVolume is repeated: a volume that is gone is no error, and an id is never given twice.
func (r *Retry) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	return retryErr(ctx, r.backoff, func() error { return r.Cloud.DeleteVolume(ctx, id) })
}

// ListVolumes is repeated: it only reads.
func (r *Retry) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	return retry(ctx, r.backoff, func() (cloud.VolumeList, error) { return r.Cloud.ListVolumes(ctx, page) })
}

// ExpandVolume is repeated: it never shrinks, so a second call after a larger one changes nothing.
func (r *Retry) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	return retry(ctx, r.backoff, func() (cloud.Expansion, error) { return r.Cloud.ExpandVolume(ctx, id, size) })
}

// ModifyVolume is repeated: tags that are there already change nothing.
func (r *Retry) ModifyVolume(ctx context.Context, id cloud.VolumeID, tags []cloud.Tag) error {
	return retryErr(ctx, r.backoff, func() error { return cloud.Modify(ctx, r.Cloud, id, tags) })
}

// Detach is repeated: fault.Unavailable says that nothing was changed, so the repeat is the first.
func (r *Retry) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	return retryErr(ctx, r.backoff, func() error { return r.Cloud.Detach(ctx, id, node) })
}

// FindSnapshot is repeated: it only reads.
func (r *Retry) FindSnapshot(ctx context.Context, name string) (cloud.Snapshot, error) {
	return retry(ctx, r.backoff, func() (cloud.Snapshot, error) { return r.Cloud.FindSnapshot(ctx, name) })
}

// GetSnapshot is repeated: it only reads.
func (r *Retry) GetSnapshot(ctx context.Context, id cloud.SnapshotID) (cloud.Snapshot, error) {
	return retry(ctx, r.backoff, func() (cloud.Snapshot, error) { return r.Cloud.GetSnapshot(ctx, id) })
}

// DeleteSnapshot is repeated: a snapshot that is gone is no error.
func (r *Retry) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	return retryErr(ctx, r.backoff, func() error { return r.Cloud.DeleteSnapshot(ctx, id) })
}

// ListSnapshots is repeated: it only reads.
func (r *Retry) ListSnapshots(ctx context.Context, of cloud.VolumeID, page cloud.Page) (cloud.SnapshotList, error) {
	return retry(ctx, r.backoff, func() (cloud.SnapshotList, error) { return r.Cloud.ListSnapshots(ctx, of, page) })
}
