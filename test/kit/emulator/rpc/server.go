// Package rpc is what an emulated gRPC API needs around its services: tokens, faults, lost answers,
// counters, and a handler that serves it beside plain HTTP. What the services do is the business of the
// cloud that uses it.
package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"path"
	"strings"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

// Kind says as what a call counts.
type Kind int

// What calls are.
const (
	Write Kind = iota // it changes something
	Read              // it changes nothing
	Aside             // it is about tokens or addresses, not about what the API is for
)

// Config says how a cloud differs.
type Config struct {
	Clock *clock.Clock
	// Seed of what is left to chance.
	Seed uint64
	// Kind of a call, by its route.
	Kind func(route string) Kind
	// Admit says why a caller with these headers may not call a route, or nil.
	Admit func(route string, header metadata.MD) error
	// RequestID makes the id of the next request.
	RequestID func() string
	// Decide, if there is one, says what happens to a call that no armed fault struck.
	Decide func(*Call) faults.Effect
}

// Call is a call that has been admitted.
type Call struct {
	// Route is the service, without its package, and the method: "DiskService/Create". Method is the latter.
	Route, Method string
	// Message is the request, Body the same as compact JSON with the names of the description.
	Message proto.Message
	Body    []byte
	// Header is what the caller sent with it.
	Header metadata.MD
	// ID is the request's id.
	ID string
	// Effect is what a fault wants of the handler: an errored operation, a stale answer.
	Effect faults.Effect
}

type callKey struct{}

// From returns the call that a service's method serves.
func From(ctx context.Context) *Call {
	call, _ := ctx.Value(callKey{}).(*Call)
	return call
}

// Error is an error with a code, as clients see it.
func Error(code codes.Code, message string) error {
	return status.FromProto(&spb.Status{Code: int32(code), Message: message}).Err()
}

// errLost is what a client is told by its own side when the connection breaks. Really breaking it would
// strike all other calls of the connection as well.
var errLost = Error(codes.Unavailable, "error reading from server: EOF")

// Server is the frame of an emulated API.
type Server struct {
	*rest.Frame
	// GRPC is where the cloud registers its services.
	GRPC *grpc.Server

	cfg Config
}

// New returns a server without services.
func New(cfg Config) *Server {
	s := &Server{Frame: rest.NewFrame(cfg.Clock), cfg: cfg}
	s.GRPC = grpc.NewServer(grpc.UnaryInterceptor(s.intercept))
	return s
}

// ServeHTTP serves gRPC; anything else is not found.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 2 || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		http.Error(w, "this address speaks gRPC", http.StatusNotFound)
		return
	}
	s.GRPC.ServeHTTP(w, r)
}

// NoAnswer is the status of a call whose connection broke; that of another is the gRPC code.
const NoAnswer = -1

func (s *Server) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if !s.Enter() {
		return nil, errLost
	}
	defer s.Leave()
	call := newCall(ctx, request, info.FullMethod)
	call.ID = s.cfg.RequestID()
	log := rest.Exchange{Method: call.Method, Route: call.Route, Path: info.FullMethod, Start: time.Now()}
	answer, lost, err := s.answer(context.WithValue(ctx, callKey{}, call), call, handler, &log)
	log.End, log.Status = time.Now(), int(status.Code(err))
	if lost {
		log.Status = NoAnswer
	}
	kind := s.cfg.Kind(call.Route)
	s.Add(call.Route, log, rest.Count{
		Read: kind == Read, Write: kind == Write, Refused: log.Status == int(codes.ResourceExhausted),
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func newCall(ctx context.Context, request any, fullMethod string) *Call {
	service, method := path.Split(strings.TrimPrefix(fullMethod, "/"))
	service = strings.TrimSuffix(service, "/")
	call := &Call{Method: method, Route: service[strings.LastIndex(service, ".")+1:] + "/" + method}
	call.Message, _ = request.(proto.Message)
	call.Header, _ = metadata.FromIncomingContext(ctx)
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(call.Message)
	var compact bytes.Buffer
	if err == nil && json.Compact(&compact, text) == nil { // protojson adds spaces as it likes
		call.Body = compact.Bytes()
	}
	return call
}

// answer takes a call through everything that can happen to it. It waits by the server's context, for what a
// cloud has begun it ends, whether the caller waits or not.
func (s *Server) answer(ctx context.Context, call *Call, handler grpc.UnaryHandler, log *rest.Exchange) (answer any, lost bool, err error) {
	if err := s.cfg.Admit(call.Route, call.Header); err != nil {
		return nil, false, err
	}
	effect := rest.Strike(s.Frame, log, call.Body, call, s.cfg.Decide)
	call.Effect = effect
	roll := clock.Roll(s.cfg.Seed, "delay", call.Route, string(call.Body))
	s.Wait(effect.Delay.Pick(roll))
	if effect.Lost == faults.LostBefore {
		return nil, true, errLost
	}
	if effect.Status != 0 {
		for key, value := range effect.Header {
			if err := grpc.SetHeader(ctx, metadata.Pairs(key, value)); err != nil {
				return nil, false, err
			}
		}
		answer, err = nil, Error(codes.Code(effect.Status), effect.Message)
	} else {
		answer, err = handler(ctx, call.Message)
		// The transport takes headers until the answer leaves, so this cannot fail.
		_ = grpc.SetHeader(ctx, metadata.Pairs("x-request-id", call.ID, "x-server-trace-id", call.ID))
	}
	s.Wait(effect.DelayAnswer.Pick(roll))
	if effect.Lost == faults.LostAfter {
		return nil, true, errLost
	}
	return answer, false, err
}
