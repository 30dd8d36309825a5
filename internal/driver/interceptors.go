package driver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/telemetry"
)

type loggerKey struct{}

// LogOf returns the logger of the RPC of a context. Its lines have the request id and the ids in the request.
func LogOf(ctx context.Context) *zap.Logger {
	if log, ok := ctx.Value(loggerKey{}).(*zap.Logger); ok {
		return log
	}
	return zap.NewNop()
}

// observer writes one log line and updates the metrics for every RPC.
type observer struct {
	log     *zap.Logger
	metrics *metrics
}

func (o observer) observe(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	ctx = telemetry.WithRequest(ctx, rand.Text())
	log := o.log.With(append([]zap.Field{telemetry.RequestField(ctx), zap.String("method", method)}, idsOf(req)...)...)
	o.metrics.inFlight.WithLabelValues(method).Inc()
	defer o.metrics.inFlight.WithLabelValues(method).Dec()

	start := time.Now()
	answer, err := handler(context.WithValue(ctx, loggerKey{}, log), req)
	took, code := time.Since(start), status.Code(err)
	o.metrics.duration.WithLabelValues(method, code.String()).Observe(took.Seconds())

	fields := []zap.Field{zap.Stringer("code", code), zap.Duration("duration", took)}
	if call, streamed := req.(*streamedCall); streamed {
		fields = append(fields, idsOf(call.request)...)
	}
	if err != nil {
		fields = append(fields, zap.String("error", status.Convert(err).Message()))
	}
	log.Log(levelOf(method, code), "rpc", fields...)
	return answer, short(err)
}

// levelOf keeps frequent calls that change nothing out of the usual log.
func levelOf(method string, code codes.Code) zapcore.Level {
	switch {
	case code == codes.Internal:
		return zapcore.ErrorLevel
	case code != codes.OK:
		return zapcore.WarnLevel
	}
	switch method {
	case "Probe", "GetPluginInfo", "GetPluginCapabilities", "ControllerGetCapabilities", "NodeGetCapabilities",
		"NodeGetVolumeStats", "GetCapacity", "ListVolumes",
		"ControllerGetVolumeHealth", "ControllerListVolumeHealth", "NodeGetVolumeHealth", "NodeGetStorageHealth":
		return zapcore.DebugLevel
	default:
		return zapcore.InfoLevel
	}
}

// idsOf returns the ids in a request, and nothing else: a request also has secrets.
func idsOf(req any) []zap.Field {
	var fields []zap.Field
	add := func(name, value string) {
		if value != "" {
			fields = append(fields, zap.String(name, clip(value)))
		}
	}
	if r, ok := req.(interface{ GetVolumeId() string }); ok {
		add("volume_id", r.GetVolumeId())
	}
	if r, ok := req.(interface{ GetSourceVolumeId() string }); ok {
		add("source_volume_id", r.GetSourceVolumeId())
	}
	if r, ok := req.(interface{ GetSnapshotId() string }); ok {
		add("snapshot_id", r.GetSnapshotId())
	}
	if r, ok := req.(interface{ GetBaseSnapshotId() string }); ok {
		add("base_snapshot_id", r.GetBaseSnapshotId())
	}
	if r, ok := req.(interface{ GetTargetSnapshotId() string }); ok {
		add("target_snapshot_id", r.GetTargetSnapshotId())
	}
	if r, ok := req.(interface{ GetNodeId() string }); ok {
		add("node_id", r.GetNodeId())
	}
	if r, ok := req.(interface{ GetName() string }); ok {
		add("name", r.GetName())
	}
	return fields
}

// clip shortens long values, with which a hostile caller could fill the log.
func clip(s string) string {
	if len(s) > nodeIDLimit {
		return fmt.Sprintf("%s... (%d bytes)", s[:stringLimit], len(s))
	}
	return s
}

// maxCalls is the maximum number of concurrent calls, within the memory that the manifests allow. A waiting call takes about 50
// KiB. Package ops refuses changes earlier and reserves places for detaches.
const maxCalls = 2000

// boundCalls refuses calls beyond maxCalls. Calls of the Identity service, including the probes, wait for nothing and are always
// served.
func boundCalls() grpc.UnaryServerInterceptor {
	var calls atomic.Int64
	identity := "/" + csi.Identity_ServiceDesc.ServiceName + "/"
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if strings.HasPrefix(info.FullMethod, identity) {
			return handler(ctx, req)
		}
		defer calls.Add(-1)
		if calls.Add(1) > maxCalls {
			return nil, fmt.Errorf("%d calls are being served; this one can be repeated later: %w", maxCalls, fault.Unavailable)
		}
		return handler(ctx, req)
	}
}

// limitCalls ends an RPC without a deadline after limit, so that it does not hold its volume's lock indefinitely.
func limitCalls(limit time.Duration) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if _, has := ctx.Deadline(); !has && limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		return handler(ctx, req)
	}
}

// recoverPanics keeps the process running when a handler panics (failure C6 of the catalogue).
func recoverPanics(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		// The text of an error or a string is logged. Any other value could be a request.
		what := fmt.Sprintf("a value of type %T", p)
		switch p := p.(type) {
		case error:
			what = p.Error()
		case string:
			what = p
		}
		LogOf(ctx).Error("panic", zap.String("panic", what), zap.ByteString("stack", debug.Stack()))
		answer, err = nil, errors.New("internal error: the handler panicked; the log has the details")
	}()
	return handler(ctx, req)
}

// overStream makes interceptors that are made for calls with one answer work for calls with a stream of answers. Their request is a
// *streamedCall.
func overStream(interceptors []grpc.UnaryServerInterceptor) grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		call := &streamedCall{ServerStream: stream}
		about := &grpc.UnaryServerInfo{Server: service, FullMethod: info.FullMethod}
		next := func(ctx context.Context, _ any) (any, error) { //nolint:unparam // a grpc.UnaryHandler
			call.ctx = ctx
			return nil, handler(service, call)
		}
		for _, interceptor := range slices.Backward(interceptors) {
			inner := next
			next = func(ctx context.Context, req any) (any, error) { return interceptor(ctx, req, about, inner) }
		}
		_, err := next(stream.Context(), call)
		return err
	}
}

// streamedCall is a call with a stream of answers. Its request is known as soon as the handler has received it.
type streamedCall struct {
	grpc.ServerStream

	ctx     context.Context //nolint:containedctx // that of the interceptors, for the handler
	request any
}

// Context returns the context that the interceptors have made.
func (c *streamedCall) Context() context.Context { return c.ctx }

// RecvMsg receives the request.
func (c *streamedCall) RecvMsg(m any) error {
	c.request = m
	return c.ServerStream.RecvMsg(m)
}

// metrics are the metrics of RPCs. docs/monitoring.md explains them.
type metrics struct {
	duration *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	refused  *prometheus.CounterVec
}

func newMetrics(cfg Config) (*metrics, error) {
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "cloudblock_rpc_duration_seconds",
			Help:    "How long CSI calls took, by method and gRPC code.",
			Buckets: []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300},
		}, []string{"method", "code"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cloudblock_rpc_in_flight",
			Help: "CSI calls being served now, by method.",
		}, []string{"method"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cloudblock_refusals_total",
			Help: "CSI calls refused for a reason that a person has to act on, by its code.",
		}, []string{"reason"}),
	}
	for _, reason := range fault.Reasons() {
		m.refused.WithLabelValues(string(reason))
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "cloudblock_build_info",
		Help:        "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": cfg.Version, "commit": cfg.Commit},
	})
	build.Set(1)
	registry := Named(cfg.Registry, cfg.Names)
	for _, c := range []prometheus.Collector{m.duration, m.inFlight, m.refused, build} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// Named returns a registerer of metrics that have the label driver_name, as those of the sidecars and of the kubelet have.
func Named(registry prometheus.Registerer, n Names) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"driver_name": n.Driver}, registry)
}

// NewLogger returns a logger of the given level (debug, info, warn, error) and format (json,
// console), or an error that names both if both are wrong.
func NewLogger(level, format string, w io.Writer) (*zap.Logger, error) {
	min, err := parseLevel(level)
	encoding := zap.NewProductionEncoderConfig()
	encoding.TimeKey = "time"
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.StringDurationEncoder
	var encoder zapcore.Encoder
	switch format {
	case "json":
		encoder = zapcore.NewJSONEncoder(encoding)
	case "console":
		encoder = zapcore.NewConsoleEncoder(encoding)
	default:
		err = errors.Join(err, fmt.Errorf("--log-format %q: not json or console: %w", format, fault.InvalidArgument))
	}
	if err != nil {
		return nil, err
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), min)), nil
}

func parseLevel(level string) (zapcore.Level, error) {
	switch level {
	case "debug":
		return zapcore.DebugLevel, nil
	case "info":
		return zapcore.InfoLevel, nil
	case "warn":
		return zapcore.WarnLevel, nil
	case "error":
		return zapcore.ErrorLevel, nil
	default:
		return 0, fmt.Errorf("--log-level %q: not debug, info, warn or error: %w", level, fault.InvalidArgument)
	}
}
