// Package telemetry has what the log lines and metrics of both programs share: the ids of RPCs, and the ages of running operations.
package telemetry

import (
	"context"

	"go.uber.org/zap"
)

type key struct{}

// WithRequest returns a context with the id of an RPC. All work for the RPC has the id: a change that continues without its caller
// keeps the caller's. The empty id means no RPC.
func WithRequest(ctx context.Context, id string) context.Context {
	if id == "" {
		return ctx
	}
	return context.WithValue(ctx, key{}, id)
}

// RequestOf returns the id of the RPC of a context, or "".
func RequestOf(ctx context.Context) string {
	id, _ := ctx.Value(key{}).(string)
	return id
}

// RequestField returns the id as a field of log lines. Work without an RPC, such as a sweep, has no field.
func RequestField(ctx context.Context) zap.Field {
	if id := RequestOf(ctx); id != "" {
		return zap.String("request", id)
	}
	return zap.Skip()
}
