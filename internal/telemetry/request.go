// Package telemetry has what log lines and metrics of both programs share: the id of an RPC, and the age of what is under way.
package telemetry

import (
	"context"

	"go.uber.org/zap"
)

type key struct{}

// WithRequest returns a context of the RPC with an id, which goes to everything that is done for it: a change that continues without its
// caller keeps the id of the caller that sent it. The empty id is that of no RPC.
func WithRequest(ctx context.Context, id string) context.Context {
	if id == "" {
		return ctx
	}
	return context.WithValue(ctx, key{}, id)
}

// RequestOf returns the id of the RPC that a context belongs to, or nothing.
func RequestOf(ctx context.Context) string {
	id, _ := ctx.Value(key{}).(string)
	return id
}

// RequestField is the id as each log line has it. What belongs to no RPC, such as a sweep, has no field.
func RequestField(ctx context.Context) zap.Field {
	if id := RequestOf(ctx); id != "" {
		return zap.String("request", id)
	}
	return zap.Skip()
}
