package yandex

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/iam/v1"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/telemetry"
)

// channel sends the requests of the generated clients, each to the address of its service. It adds the token, waits for the budget
// and classifies failures; the layers above decide what is repeated (docs/contributing/decisions/clouds.md, 16).
type channel struct {
	connections *connections
	tokens      tokens
	governor    *budget.Governor
	metrics     *budget.Metrics
	log         *zap.Logger
}

var _ grpc.ClientConnInterface = (*channel)(nil)

// maxAnswer is the maximum length of an answer. The longest valid one is a page of 1,000 disks with 64 labels each.
const maxAnswer = 16 << 20

// openServices are the services that need no token.
var openServices = []string{"/yandex.cloud.endpoint.", "/yandex.cloud.iam."}

// newChannel prepares the connections. It sends nothing.
func newChannel(cfg Config) (*channel, error) {
	a := &channel{
		governor: cfg.Governor("", cfg.Limits),
		metrics:  cfg.Metrics.Budget,
		log:      cfg.Log,
	}
	var err error
	if a.connections, err = newConnections(cfg, a); err != nil {
		return nil, err
	}
	exchange := iam.NewIamTokenServiceClient(a)
	a.tokens = tokens{
		secret: cfg.Token, machine: cfg.MachineToken, asking: newMutex(),
		exchange: func(ctx context.Context, jwt string) (Token, error) {
			made, err := exchange.Create(ctx, &iam.CreateIamTokenRequest{Identity: &iam.CreateIamTokenRequest_Jwt{Jwt: jwt}})
			if err != nil {
				return Token{}, err
			}
			return Token{Text: made.GetIamToken(), Expires: made.GetExpiresAt().AsTime()}, nil
		},
	}
	return a, nil
}

// steering is a call option of this package: how a request is sent.
type steering struct {
	grpc.EmptyCallOption

	// write is set for a request that changes something; a read has a priority.
	write    *ops.Write
	priority budget.Priority
}

// by marks a request as that of a Write.
func by(w *ops.Write) grpc.CallOption { return steering{write: w, priority: w.Priority} }

// priority sets the priority of a read; without it, a read has budget.Read.
func priority(p budget.Priority) grpc.CallOption { return steering{priority: p} }

func steeringOf(opts []grpc.CallOption) steering {
	for _, o := range opts {
		if s, ok := o.(steering); ok {
			return s
		}
	}
	return steering{priority: budget.Read}
}

// route is the short name of a method in metrics and messages: DiskService/Create.
func route(method string) string { return method[strings.LastIndex(method, ".")+1:] }

// Invoke sends a request within the budget and waits for its answer. It repeats the request only if the cloud refused it because of
// the budget or the token. An error of a read has the answer's kind or fault.Unavailable. An error of a write is fault.Uncertain
// unless nothing was changed.
func (a *channel) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	r := request{method: method, args: args, reply: reply, steering: steeringOf(opts), opts: opts}
	for _, open := range openServices {
		if strings.HasPrefix(method, open) {
			return r.explained(a.send(ctx, r, ""))
		}
	}
	refusedToken := ""
	for {
		token, err := a.tokens.get(ctx, refusedToken)
		if err != nil {
			return err
		}
		if token == refusedToken {
			return fmt.Errorf("%w: the token is not accepted: the cloud answers %s", fault.Denied, codes.Unauthenticated)
		}
		if err := a.governor.Acquire(ctx, r.priority); err != nil {
			return fmt.Errorf("%s was not carried out: %w", route(method), err)
		}
		err = a.send(ctx, r, token)
		said := answerOf(err)
		a.learn(said)
		switch {
		case said != nil && said.throttled(): // it was not carried out; the governor knows when to go on
		case said != nil && said.code == codes.Unauthenticated && refusedToken == "":
			refusedToken = token // nor was this; there may be a newer one
		default:
			return r.explained(err)
		}
		if r.write != nil {
			r.write.NotApplied()
		}
	}
}

// NewStream is never called: the services have no streams.
func (a *channel) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, fmt.Errorf("streams: %w", fault.Unsupported)
}

func (a *channel) learn(said *answer) {
	if said == nil || !said.throttled() {
		a.governor.Learn(budget.Rate{})
		return
	}
	a.governor.Learn(budget.Rate{Refused: true, Words: said.words})
}

// request is one request.
type request struct {
	steering

	method      string
	args, reply any
	opts        []grpc.CallOption
}

// explained classifies the failure of a request.
func (r request) explained(err error) error {
	switch a := answerOf(err); {
	case a == nil:
		return err
	case r.write != nil && a.vague():
		return fmt.Errorf("%w: %w", fault.Uncertain, a)
	case r.write == nil && a.code == codes.ResourceExhausted: // a read takes nothing that another quota counts
		return fmt.Errorf("%w: %w", fault.Unavailable, a)
	default:
		return fmt.Errorf("%w: %w", kindOf(a), a)
	}
}

// secret returns the part of a request that no message may contain.
func (r request) secret(token string) string {
	if exchange, is := r.args.(*iam.CreateIamTokenRequest); is {
		return exchange.GetJwt()
	}
	return token
}

// send makes one attempt. An error without a kind is an answer of the cloud.
func (a *channel) send(ctx context.Context, r request, token string) error {
	conn, err := a.connections.to(ctx, r.method)
	if err != nil {
		return err
	}
	without := fault.Unavailable // what is known of a request that has left and got no answer
	if r.write != nil {
		without = fault.Uncertain
		ctx, err = r.write.MarkSent()
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ops.AnswerTimeout)
		defer cancel()
	}
	if err != nil {
		return err
	}
	going := ctx
	if token != "" {
		going = metadata.AppendToOutgoingContext(going, "authorization", "Bearer "+token)
	}
	if r.write != nil && r.write.Key != "" {
		going = metadata.AppendToOutgoingContext(going, "idempotency-key", r.write.Key)
	}
	var departed atomic.Bool
	depart := func() {
		departed.Store(true)
		if r.write != nil {
			r.write.Connected()
		}
	}
	var header metadata.MD
	began := time.Now()
	err = conn.Invoke(context.WithValue(going, departedKey{}, depart), r.method, r.args, r.reply,
		append(slices.Clone(r.opts), grpc.Header(&header), grpc.MaxCallRecvMsgSize(maxAnswer))...)
	said := newAnswer(status.Convert(err), header, r.secret(token))
	code := said.code.String()
	counted := code
	if said.throttled() {
		counted = codeThrottled
	}
	a.metrics.Requested(route(r.method), "grpc", counted)
	a.log.Debug("api request", telemetry.RequestField(ctx), zap.String("verb", "grpc"), zap.String("route", route(r.method)),
		zap.String("code", code), zap.Duration("duration", time.Since(began)), zap.String("cloud_request", requestIDOf(header, r.secret(token))))
	switch {
	case err == nil:
		return nil
	case !departed.Load() && ctx.Err() != nil:
		return fmt.Errorf("%w: nothing was sent: %w", fault.Unavailable, ctx.Err())
	case !departed.Load():
		return fmt.Errorf("%w: no connection to the API: %w", fault.Unavailable, unwrapped(err))
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", without, context.Cause(ctx))
	}
	if ofClient(status.Convert(err)) {
		return fmt.Errorf("%w: the answer cannot be read: %s", without, said.words)
	}
	return said
}

// unwrapped hides the gRPC status of an error of the client, so that it does not count as the cloud's.
func unwrapped(err error) error { return errors.New(status.Convert(err).Message()) }

type departedKey struct{}

// departures records whether a request was sent. Without a connection it was not, and nothing was changed.
type departures struct{}

// TagRPC returns the context as it is.
func (departures) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC records that a request was sent.
func (departures) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, left := event.(*stats.OutHeader); !left {
		return
	}
	if depart, ok := ctx.Value(departedKey{}).(func()); ok {
		depart()
	}
}

// TagConn returns the context as it is.
func (departures) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (departures) HandleConn(context.Context, stats.ConnStats) {}
