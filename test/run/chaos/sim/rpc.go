package sim

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/trouble"
)

// rpc is a call under way.
type rpc struct {
	sidecar plan.Sidecar
	cancel  context.CancelFunc
}

// send makes one call.
type send func(ctx context.Context, to csi.ControllerClient) (proto.Message, error)

// calling sends a request to a method.
func calling[Q any, A proto.Message](method func(csi.ControllerClient, context.Context, Q, ...grpc.CallOption) (A, error), req Q) send {
	return func(ctx context.Context, to csi.ControllerClient) (proto.Message, error) { return method(to, ctx, req) }
}

// learn takes an answer that says yes. It is called with mu held. Mine: the caller itself got it, not
// an older leader of the same sidecar.
type learn func(answer proto.Message, mine bool)

// call sends a call the way a sidecar does, with what may happen to it on the way: a deadline that is too
// short, a sidecar that is restarted, an older leader that sends the same call at the same time.
func (a *actor) call(as plan.Sidecar, method, object string, timeout time.Duration, do send, got learn) error {
	s := a.s
	kind, rng := s.in.Decide(string(as)+" "+method, object, []trouble.Chance{trouble.Cancelled.Chance(.05), trouble.Hurried.Chance(.06), trouble.Twice.Chance(.12)})
	s.mu.Lock()
	leader := s.lead[as]
	s.mu.Unlock()
	var older chan struct{}
	ctx, cancel := context.WithCancel(s.life)
	defer cancel()
	switch kind {
	case trouble.Cancelled:
		stop := time.AfterFunc(s.quick(trouble.Between(rng, time.Millisecond, 5*time.Second)), cancel)
		defer stop.Stop()
	case trouble.Hurried:
		timeout = trouble.Between(rng, 100*time.Millisecond, 5*time.Second)
	case trouble.Twice:
		other := (leader + 1) % s.plan.Controllers
		early := trouble.Between(rng, time.Microsecond, time.Second)
		older = make(chan struct{})
		go func() {
			defer close(older)
			_ = a.once(ctx, try{as, method, object, timeout, other, false}, do, got)
		}()
		_ = wait.Sleep(s.life, s.quick(early))
	}
	err := a.once(ctx, try{as, method, object, timeout, leader, true}, do, got)
	if older != nil {
		cancel() // an older leader does not outlive the first success of the new one
		<-older
	}
	return err
}

// try is one attempt of a call.
type try struct {
	as             plan.Sidecar
	method, object string
	timeout        time.Duration
	controller     int
	mine           bool
}

func (a *actor) once(ctx context.Context, t try, do send, got learn) error {
	s := a.s
	// The controller gets a deadline that is rounded up: it ends after its caller's, never with it.
	ctx, cancel := context.WithTimeout(ctx, s.quick(t.timeout).Truncate(time.Millisecond)+500500*time.Nanosecond)
	defer cancel()
	r := &rpc{sidecar: t.as, cancel: cancel}
	s.set(func() {
		s.calls = append(s.calls, r)
		s.rpcs++
	})
	who := string(t.as)
	if !t.mine {
		who = "older " + who
	}
	s.hist.add(who, "%s %s -> controller %d", t.method, t.object, t.controller)
	answer, err := s.send(ctx, t.controller, do)
	s.set(func() {
		s.calls = slices.DeleteFunc(s.calls, func(x *rpc) bool { return x == r })
		if err != nil {
			s.hist.add(who, "%s %s: %s", t.method, t.object, status.Convert(err).Code())
			s.hist.detail(err)
			s.checkCode(t, err)
			return
		}
		s.hist.add(who, "%s %s: OK %s", t.method, t.object, brief(answer))
		got(answer, t.mine)
	})
	s.check()
	return err
}

func (s *sim) send(ctx context.Context, controller int, do send) (proto.Message, error) {
	client := s.fleet.Client(controller)
	if client == nil {
		return nil, status.Error(codes.Unavailable, "the controller is down")
	}
	return do(ctx, client)
}

// checkCode refuses codes that say that nobody thought of the case. The caller holds mu.
func (s *sim) checkCode(t try, err error) {
	switch status.Code(err) {
	case codes.Internal, codes.Unknown, codes.DataLoss, codes.Unimplemented:
		s.wrong(BadCode, "%s %s: %v", t.method, t.object, err)
	case codes.AlreadyExists:
		if t.method == "CreateVolume" && t.object == claimName(plan.Clash) || t.method == "CreateSnapshot" && t.object == foreignSnapshot {
			return
		}
		s.wrong(BadCode, "%s %s: the same request was answered %v", t.method, t.object, err)
	}
}

// brief is an answer in a few words.
func brief(m proto.Message) string {
	switch m := m.(type) {
	case *csi.CreateVolumeResponse:
		return m.GetVolume().GetVolumeId()
	case *csi.CreateSnapshotResponse:
		text := m.GetSnapshot().GetSnapshotId()
		if !m.GetSnapshot().GetReadyToUse() {
			text += " (not ready)"
		}
		return text
	case *csi.ListVolumesResponse:
		var ids []string
		for _, e := range m.GetEntries() {
			ids = append(ids, e.GetVolume().GetVolumeId())
		}
		return strings.Join(ids, " ")
	default:
		return ""
	}
}
