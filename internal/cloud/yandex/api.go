package yandex

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/iam/v1"
	ycsdk "github.com/yandex-cloud/go-sdk/v2"
	"github.com/yandex-cloud/go-sdk/v2/credentials"
	"github.com/yandex-cloud/go-sdk/v2/pkg/authentication"
	"github.com/yandex-cloud/go-sdk/v2/pkg/options"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	transport "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// An api sends requests, each to the address of its service. The SDK keeps the connections and finds the
// addresses; the token, the budget and what is known of a request that failed are here, because what a
// repeat is worth is for the layers above to know (docs/adr/0016).
type api struct {
	sdk      *ycsdk.SDK
	dir      *directory
	turn     gate // of those that take a connection
	tokens   tokens
	governor *budget.Governor
	metrics  *budget.Metrics
}

var _ grpc.ClientConnInterface = (*api)(nil)

// openServices are those that want no token.
var openServices = []string{"/yandex.cloud.endpoint.", "/yandex.cloud.iam."}

// newAPI makes the connections' pool. Nothing is sent yet.
func newAPI(ctx context.Context, cfg Config) (*api, error) {
	a := &api{
		governor: budget.New(budget.Config{Windows: cfg.Limits, Rand: cfg.Rand, Metrics: cfg.Metrics.Budget}),
		metrics:  cfg.Metrics.Budget,
		turn:     newGate(),
	}
	var err error
	if a.dir, err = newDirectory(cfg, a); err != nil {
		return nil, err
	}
	dial := []grpc.DialOption{grpc.WithStatsHandler(departures{})}
	if cfg.UserAgent != "" {
		dial = append(dial, grpc.WithUserAgent(cfg.UserAgent))
	}
	if cfg.Around != nil {
		dial = append(dial, grpc.WithChainUnaryInterceptor(cfg.Around))
	}
	a.sdk, err = ycsdk.Build(ctx,
		options.WithCredentials(credentials.NoAuthentication()), // the token is put on each request below
		options.WithAuthenticator(noAuthenticator{}),
		options.WithEndpointsResolver(a.dir),
		options.WithKeepalive(keepalive.ClientParameters{Time: answerPing, Timeout: answerPing}),
		options.WithCustomDialOptions(dial...),
	)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fault.InvalidArgument, err)
	}
	exchange := iam.NewIamTokenServiceClient(a)
	a.tokens = tokens{
		secret: cfg.Credentials, machine: cfg.MachineToken, turn: newGate(),
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

// noAuthenticator is in place of the SDK's own, which looks for the address of the tokens' service while it is
// made, and makes a connection for each token that it never closes.
type noAuthenticator struct{}

// CreateIAMToken is never called.
func (noAuthenticator) CreateIAMToken(context.Context) (authentication.IamToken, error) {
	return nil, fault.Unsupported
}

// CreateIAMTokenForServiceAccount is never called.
func (noAuthenticator) CreateIAMTokenForServiceAccount(context.Context, string) (authentication.IamToken, error) {
	return nil, fault.Unsupported
}

// transportOf is how connections to an endpoint are protected: TLS, or not at all for http://, which is for
// loopback addresses only.
func transportOf(cfg Config) grpc.DialOption {
	if strings.HasPrefix(cfg.Endpoint, "http://") {
		return grpc.WithTransportCredentials(insecure.NewCredentials())
	}
	return grpc.WithTransportCredentials(transport.NewTLS(&tls.Config{RootCAs: cfg.RootCAs, MinVersion: tls.VersionTLS12}))
}

// addressOf is the address of an endpoint, with the port.
func addressOf(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("endpoint %q is not of the form https://host[:port]: %w", endpoint, fault.InvalidArgument)
	}
	if u.Port() != "" {
		return u.Host, nil
	}
	return net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme]), nil
}

type keyOfCall struct{}

// withKey makes the requests of a context bear an idempotency key.
func withKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyOfCall{}, key)
}

// route names a request for people: DiskService/Create.
func route(method string) string { return method[strings.LastIndex(method, ".")+1:] }

// Invoke sends a request and waits for its answer. An error carries the cloud's answer, or a kind.
func (a *api) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	for _, open := range openServices {
		if strings.HasPrefix(method, open) {
			return a.send(ctx, method, "", args, reply, opts)
		}
	}
	refusedToken := ""
	for {
		token, err := a.tokens.get(ctx, refusedToken)
		if err != nil {
			return err
		}
		if token == refusedToken {
			return &answer{code: codes.Unauthenticated, words: "the token is not accepted"}
		}
		if err := a.governor.Acquire(ctx, a.priority(ctx, method)); err != nil {
			return fmt.Errorf("%s was not carried out: %w", route(method), err)
		}
		err = a.send(ctx, method, token, args, reply, opts)
		said := answerOf(err)
		a.learn(said)
		switch {
		case said != nil && budgetRefusal(said): // it was not carried out; the governor knows when to go on
		case said != nil && said.code == codes.Unauthenticated && refusedToken == "":
			refusedToken = token // nor was this; there may be a newer one
		default:
			return err
		}
	}
}

// NewStream is never called: none of the services has a stream.
func (a *api) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, fmt.Errorf("streams: %w", fault.Unsupported)
}

func (a *api) priority(ctx context.Context, method string) budget.Priority {
	p := budget.PriorityOf(ctx)
	if name := route(method); p == budget.Default && (strings.HasSuffix(name, "/Get") || strings.Contains(name, "/List")) {
		p = budget.Read
	}
	return p
}

func (a *api) learn(said *answer) {
	if said == nil || !budgetRefusal(said) {
		a.governor.Learn(budget.Rate{})
		return
	}
	a.governor.Learn(budget.Rate{Refused: true, Words: said.words})
}

// send makes one attempt.
func (a *api) send(ctx context.Context, method, token string, args, reply any, opts []grpc.CallOption) error {
	conn, err := a.connection(ctx, fullName(method))
	if err != nil {
		return err
	}
	going, back, err := remote.Leave(ctx)
	if err != nil {
		return err
	}
	if token != "" {
		going = metadata.AppendToOutgoingContext(going, "authorization", "Bearer "+token)
	}
	if key, has := ctx.Value(keyOfCall{}).(string); has {
		going = metadata.AppendToOutgoingContext(going, "idempotency-key", key)
	}
	departed := &atomic.Bool{}
	var header metadata.MD
	err = conn.Invoke(context.WithValue(going, departedKey{}, departed), method, args, reply, append(opts, grpc.Header(&header))...)
	a.metrics.Requested(route(method), "grpc", status.Code(err).String())
	said := answeredWith(err, header)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !departed.Load():
		return fmt.Errorf("%w: %w", fault.Unavailable, ctx.Err())
	case !departed.Load():
		back()
		return fmt.Errorf("%w: no connection to the API: %w", fault.Unavailable, unwrapped(err))
	case ctx.Err() != nil:
		return remote.Plain(errors.Join(ctx.Err(), err))
	case budgetRefusal(said) || said.code == codes.Unauthenticated:
		back()
	}
	return said
}

// connection returns the one for a method. One at a time: two that ask for the first connection to an address
// at once get one each from the SDK, which forgets to close one of them.
func (a *api) connection(ctx context.Context, method protoreflect.FullName) (grpc.ClientConnInterface, error) {
	if _, err := a.dir.Endpoint(ctx, method); err != nil { // takes a request once, so it is not asked in turn
		return nil, err
	}
	if err := a.turn.enter(ctx); err != nil {
		return nil, err
	}
	defer a.turn.leave()
	conn, err := a.sdk.GetConnection(ctx, method)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fault.Unavailable, unwrapped(err))
	}
	return conn, nil
}

// answeredWith is the answer that an error tells of.
func answeredWith(err error, header metadata.MD) *answer {
	if err == nil {
		return nil
	}
	said := newAnswer(status.Convert(err))
	for _, name := range []string{"x-server-trace-id", "x-request-id"} {
		if ids := header.Get(name); len(ids) > 0 {
			said.requestID = ids[0]
		}
	}
	return said
}

// unwrapped is an error without its status, so that nobody takes the client's for the cloud's.
func unwrapped(err error) error { return errors.New(status.Convert(err).Message()) }

// fullName is the name of a method as the SDK wants it, with dots.
func fullName(method string) protoreflect.FullName {
	return protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
}

type departedKey struct{}

// departures notes of each request whether it has left: where there was no connection it has not, and nothing
// was changed.
type departures struct{}

// TagRPC returns the context as it is.
func (departures) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC notes that a request has left.
func (departures) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, left := event.(*stats.OutHeader); !left {
		return
	}
	if departed, ok := ctx.Value(departedKey{}).(*atomic.Bool); ok {
		departed.Store(true)
	}
}

// TagConn returns the context as it is.
func (departures) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (departures) HandleConn(context.Context, stats.ConnStats) {}
