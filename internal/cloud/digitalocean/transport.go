package digitalocean

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// DefaultTransport returns a transport that does not wait for ever. A caller adds what it needs, such as
// certificates of its own.
func DefaultTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = answerTimeout
	// One request stands for one change, and many are made at once.
	t.MaxIdleConnsPerHost = 32
	return t
}

// sender puts the token on each request and sends it. It stands below the budget: what comes here is
// sent now.
type sender struct {
	base  http.RoundTripper
	token func() (string, error)
}

// RoundTrip sends a request. A write that was sent is not broken off when its caller goes: the
// connection would be cut while the cloud acts on it, and nobody would know whether it has.
func (s *sender) RoundTrip(req *http.Request) (*http.Response, error) {
	token, err := s.token()
	if err != nil {
		return nil, fmt.Errorf("%w: the API token cannot be read: %w", fault.Unavailable, err)
	}
	ctx := req.Context()
	f, isWrite := ctx.Value(flightKey{}).(*flight)
	if isWrite {
		if !f.leave() {
			return nil, fmt.Errorf("%w: %w", fault.Unavailable, context.Cause(ctx))
		}
		ctx = f.ctx
	}
	req = req.Clone(ctx)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := s.base.RoundTrip(req)
	if isWrite && err == nil && resp.StatusCode == http.StatusTooManyRequests {
		f.back()
	}
	return resp, err
}

// A flight is a write on its way. Exactly one side wins: either it is sent, or its caller has gone
// before that and it never is. One that was refused for want of budget was not carried out, and is on
// the ground again.
type flight struct {
	ctx context.Context // bounds the answer, not the caller's patience
	// limit ends ctx. It runs while an answer is waited for, and not while the budget is.
	limit *time.Timer
	state atomic.Int32
}

func newFlight(life context.Context) (f *flight, land func()) {
	ctx, cancel := context.WithCancelCause(life)
	f = &flight{ctx: ctx, limit: time.AfterFunc(answerTimeout, func() { cancel(errSilent) })}
	f.limit.Stop()
	return f, func() {
		f.limit.Stop()
		cancel(nil)
	}
}

// errSilent is a cloud that has not answered for answerTimeout.
var errSilent = fmt.Errorf("the cloud has not answered for %s: %w", answerTimeout, context.DeadlineExceeded)

type flightKey struct{}

const (
	onGround int32 = iota
	inAir
	dropped
)

func (f *flight) leave() bool {
	if !f.state.CompareAndSwap(onGround, inAir) && f.state.Load() != inAir {
		return false
	}
	f.limit.Reset(answerTimeout)
	return true
}

func (f *flight) back() {
	f.limit.Stop()
	f.state.CompareAndSwap(inAir, onGround)
}

func (f *flight) drop() bool { return f.state.CompareAndSwap(onGround, dropped) }

// write sends a change. When ctx ends before the change was sent it never is; after that the call is
// answered with fault.Uncertain at once and the request goes on without it. A later write of the same
// object waits until the earlier one was answered, so the two cannot overtake one another.
func (c *Cloud) write(ctx context.Context, object, doing string, send func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w: %w", doing, fault.Unavailable, err)
	}
	done, err := c.known.takeOff(ctx, object)
	if err != nil {
		return fmt.Errorf("%s: %w: an earlier change of it was not answered yet: %w", doing, fault.Unavailable, err)
	}
	f, land := newFlight(c.life)
	answered := make(chan error, 1)
	c.running.Go(func() {
		defer land()
		defer done()
		answered <- send(context.WithValue(ctx, flightKey{}, f))
	})
	select {
	case err = <-answered:
	case <-ctx.Done():
		if !f.drop() {
			return fmt.Errorf("%s: %w: it was sent, and nobody waited for the answer: %w", doing, fault.Uncertain, ctx.Err())
		}
		err = <-answered // at once: it is not sent any more
		if !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", fault.Unavailable, ctx.Err())
		}
	}
	return writeError(doing, err)
}

// routes are the paths with their ids, for metrics.
var routes = []struct {
	pattern  *regexp.Regexp
	template string
}{
	{regexp.MustCompile(`/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "/{id}"},
	{regexp.MustCompile(`/tags/[^/]+`), "/tags/{tag}"},
	{regexp.MustCompile(`/[0-9]+`), "/{id}"},
}

// routeOf names the route of a path.
func routeOf(path string) string {
	for _, r := range routes {
		path = r.pattern.ReplaceAllString(path, r.template)
	}
	return strings.TrimSuffix(path, "/")
}

func volumeKey(id cloud.VolumeID) string { return "volume " + string(id) }
