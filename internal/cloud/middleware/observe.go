package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/telemetry"
)

// NewCalls makes the metric that Observe fills and registers it.
func NewCalls(reg prometheus.Registerer) (*prometheus.HistogramVec, error) {
	calls := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "cloudblock_cloud_call_duration_seconds",
		Help:    "How long calls of the cloud contract took, by call and by kind of failure (ok: none).",
		Buckets: []float64{.01, .03, .1, .3, 1, 3, 10, 30, 100, 300},
	}, []string{"call", "kind"})
	if err := reg.Register(calls); err != nil {
		return nil, fmt.Errorf("register the metric of cloud calls: %w", err)
	}
	return calls, nil
}

// Observe writes one debug line and one observation for each call. It logs ids, names and sizes, and
// never a whole request: tags and parameters may hold what others wrote there.
type Observe struct {
	cloud.Cloud

	log   *zap.Logger
	calls *prometheus.HistogramVec
}

// NewObserve wraps c. A nil log or metric is left out.
func NewObserve(c cloud.Cloud, log *zap.Logger, calls *prometheus.HistogramVec) *Observe {
	if log == nil {
		log = zap.NewNop()
	}
	return &Observe{Cloud: c, log: log, calls: calls}
}

// done is deferred with the time of the call and the place where its error will be.
func (o *Observe) done(ctx context.Context, call string, began time.Time, err *error, ids ...zap.Field) {
	took, kind := time.Since(began), kindLabel(*err)
	if o.calls != nil {
		o.calls.WithLabelValues(call, kind).Observe(took.Seconds())
	}
	if entry := o.log.Check(zap.DebugLevel, "cloud call"); entry != nil {
		ids = append(ids, telemetry.RequestField(ctx), zap.String("call", call), zap.String("kind", kind), zap.Duration("took", took))
		if *err != nil {
			ids = append(ids, zap.Error(*err))
		}
		entry.Write(ids...)
	}
}

// kindLabel names an outcome in few words, so that the metric has few series.
func kindLabel(err error) string {
	kind := fault.Of(err)
	switch {
	case err == nil:
		return "ok"
	case kind != fault.None:
		return string(kind)
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline exceeded"
	default:
		return "no kind"
	}
}

func volumeID(id cloud.VolumeID) zap.Field { return zap.String("volume_id", string(id)) }
func nodeID(id cloud.NodeID) zap.Field     { return zap.String("node_id", string(id)) }

func snapshotID(id cloud.SnapshotID) zap.Field { return zap.String("snapshot_id", string(id)) }

// Capacity observes the call.
func (o *Observe) Capacity(ctx context.Context, zone string, class []cloud.Parameter) (size cloud.Bytes, err error) {
	defer o.done(ctx, "Capacity", time.Now(), &err, zap.String("zone", zone))
	return o.Cloud.Capacity(ctx, zone, class)
}

// Check observes the call.
func (o *Observe) Check(ctx context.Context) (err error) {
	defer o.done(ctx, "Check", time.Now(), &err)
	return o.Cloud.Check(ctx)
}

// CreateVolume observes the call.
func (o *Observe) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (vol cloud.Volume, err error) {
	defer o.done(ctx, "CreateVolume", time.Now(), &err, zap.String("name", req.Name), zap.Stringer("size", req.Size))
	return o.Cloud.CreateVolume(ctx, req)
}

// FindVolume observes the call.
func (o *Observe) FindVolume(ctx context.Context, name string) (vol cloud.Volume, err error) {
	defer o.done(ctx, "FindVolume", time.Now(), &err, zap.String("name", name))
	return o.Cloud.FindVolume(ctx, name)
}

// GetVolume observes the call.
func (o *Observe) GetVolume(ctx context.Context, id cloud.VolumeID) (vol cloud.Volume, err error) {
	defer o.done(ctx, "GetVolume", time.Now(), &err, volumeID(id))
	return o.Cloud.GetVolume(ctx, id)
}

// DeleteVolume observes the call.
func (o *Observe) DeleteVolume(ctx context.Context, id cloud.VolumeID) (err error) {
	defer o.done(ctx, "DeleteVolume", time.Now(), &err, volumeID(id))
	return o.Cloud.DeleteVolume(ctx, id)
}

// ListVolumes observes the call.
func (o *Observe) ListVolumes(ctx context.Context, page cloud.Page) (list cloud.VolumeList, err error) {
	defer o.done(ctx, "ListVolumes", time.Now(), &err)
	return o.Cloud.ListVolumes(ctx, page)
}

// ExpandVolume observes the call.
func (o *Observe) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (exp cloud.Expansion, err error) {
	defer o.done(ctx, "ExpandVolume", time.Now(), &err, volumeID(id), zap.Stringer("size", size))
	return o.Cloud.ExpandVolume(ctx, id, size)
}

// ModifyVolume observes the call.
func (o *Observe) ModifyVolume(ctx context.Context, id cloud.VolumeID, tags []cloud.Tag) (err error) {
	defer o.done(ctx, "ModifyVolume", time.Now(), &err, volumeID(id))
	return o.Cloud.ModifyVolume(ctx, id, tags)
}

// Attach observes the call.
func (o *Observe) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (dev cloud.Device, err error) {
	defer o.done(ctx, "Attach", time.Now(), &err, volumeID(id), nodeID(node))
	return o.Cloud.Attach(ctx, id, node)
}

// Detach observes the call.
func (o *Observe) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (err error) {
	defer o.done(ctx, "Detach", time.Now(), &err, volumeID(id), nodeID(node))
	return o.Cloud.Detach(ctx, id, node)
}

// CreateSnapshot observes the call.
func (o *Observe) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (snap cloud.Snapshot, err error) {
	defer o.done(ctx, "CreateSnapshot", time.Now(), &err,
		zap.String("name", req.Name), volumeID(req.Volume))
	return o.Cloud.CreateSnapshot(ctx, req)
}

// FindSnapshot observes the call.
func (o *Observe) FindSnapshot(ctx context.Context, name string) (snap cloud.Snapshot, err error) {
	defer o.done(ctx, "FindSnapshot", time.Now(), &err, zap.String("name", name))
	return o.Cloud.FindSnapshot(ctx, name)
}

// GetSnapshot observes the call.
func (o *Observe) GetSnapshot(ctx context.Context, id cloud.SnapshotID) (snap cloud.Snapshot, err error) {
	defer o.done(ctx, "GetSnapshot", time.Now(), &err, snapshotID(id))
	return o.Cloud.GetSnapshot(ctx, id)
}

// DeleteSnapshot observes the call.
func (o *Observe) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) (err error) {
	defer o.done(ctx, "DeleteSnapshot", time.Now(), &err, snapshotID(id))
	return o.Cloud.DeleteSnapshot(ctx, id)
}

// ListSnapshots observes the call.
func (o *Observe) ListSnapshots(ctx context.Context, of cloud.VolumeID, page cloud.Page) (list cloud.SnapshotList, err error) {
	defer o.done(ctx, "ListSnapshots", time.Now(), &err, volumeID(of))
	return o.Cloud.ListSnapshots(ctx, of, page)
}
