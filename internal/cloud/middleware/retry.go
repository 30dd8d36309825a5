package middleware

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// DefaultBackoff covers a short outage and leaves a long one to the caller's own retries.
var DefaultBackoff = wait.Backoff{Tries: 4, First: 300 * time.Millisecond, Max: 2 * time.Second}

// Retry repeats calls that returned fault.Unavailable, if a repeat is harmless: those that only read, and those that the contract
// allows to be called twice (DeleteVolume, ExpandVolume, ModifyVolume, Detach, DeleteSnapshot). It never repeats a create, which
// Idempotent finds by its name instead, and never an attach: between two of them another caller may have detached the volume.
type Retry struct {
	cloud.Cloud

	backoff wait.Backoff
}

// NewRetry wraps c. A Backoff without Tries means DefaultBackoff.
func NewRetry(c cloud.Cloud, backoff wait.Backoff) *Retry {
	if backoff.Tries == 0 {
		random := backoff.Rand
		backoff = DefaultBackoff
		backoff.Rand = random
	}
	if backoff.Rand == nil {
		backoff.Rand = rand.Float64
	}
	return &Retry{Cloud: c, backoff: backoff}
}

// retry repeats a call until its answer is final, and returns the last answer unchanged.
func retry[T any](ctx context.Context, b wait.Backoff, call func() (T, error)) (answer T, err error) {
	err = retryErr(ctx, b, func() error {
		answer, err = call()
		return err
	})
	return answer, err
}

// retryErr is retry for calls that return only an error.
func retryErr(ctx context.Context, b wait.Backoff, call func() error) error {
	return b.Retry(ctx, func(err error) bool { return fault.Of(err) == fault.Unavailable }, call)
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

// DeleteVolume is repeated: a volume that is gone is no error, and ids are never reused.
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
	return retryErr(ctx, r.backoff, func() error { return r.Cloud.ModifyVolume(ctx, id, tags) })
}

// Detach is repeated: fault.Unavailable means that nothing was changed, so the repeat is like a first call.
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
