// Package requestid carries the id of an RPC to everything that is done for it. The id is in the context, so a change that
// continues without its caller keeps the id of the caller that sent it.
package requestid

import (
	"context"

	"go.uber.org/zap"
)

type key struct{}

// With returns a context of the request with an id. The empty id is that of no request.
func With(ctx context.Context, id string) context.Context {
	if id == "" {
		return ctx
	}
	return context.WithValue(ctx, key{}, id)
}

// Of returns the id of the request that a context belongs to, or nothing.
func Of(ctx context.Context) string {
	id, _ := ctx.Value(key{}).(string)
	return id
}

// Field is the id as each log line has it. What belongs to no request, such as a sweep, has no field.
func Field(ctx context.Context) zap.Field {
	if id := Of(ctx); id != "" {
		return zap.String("request", id)
	}
	return zap.Skip()
}
