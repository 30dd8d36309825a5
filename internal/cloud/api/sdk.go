package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Call describes the one request of an SDK's call and the required answer. The first fields are those of Request.
type Call struct {
	Doing     string
	Write     *ops.Write
	Priority  budget.Priority
	NoContent bool
	// Has are keys that the answer must have with a value other than null, 0 and "". Is are keys with their required values, as JSON: the id
	// of what a read asks for. A key in an object of the answer is written as action.id.
	Has []string
	Is  map[string]string
	// Empty: only the empty object is success.
	Empty bool
	// Received is that of Request.
	Received *http.Header
}

// errSecond is the error of a second request within one Call, such as a retry or another page.
var errSecond = errors.New("the SDK has made a second request in one call")

// sending is the state of a Call.
type sending struct {
	call Call

	mu   sync.Mutex
	sent bool
	err  error
	// leave releases the slot of the answer (Bounded), which the SDK decodes.
	leave func()
}

type sendingKey struct{}

// depart calls MarkSent of the Write, and keeps the Call in the context that this returns.
func depart(ctx context.Context, w *ops.Write) (context.Context, error) {
	s := ctx.Value(sendingKey{})
	departed, err := w.MarkSent()
	if err != nil {
		return nil, err
	}
	return context.WithValue(departed, sendingKey{}, s), nil
}

// Through calls an SDK whose transport is a Transport. The SDK gets a complete answer with the required content, or an error. What happened
// to the request decides about the result, not the SDK's error. An error has a kind as with Client.Do.
func Through[T any](ctx context.Context, c Call, call func(ctx context.Context) (T, error)) (T, error) {
	var none T
	s := &sending{call: c, leave: func() {}}
	defer func() { s.leave() }()
	v, err := call(context.WithValue(ctx, sendingKey{}, s))
	s.mu.Lock()
	defer s.mu.Unlock()
	named := Request{Doing: c.Doing}.named
	switch {
	case s.err != nil:
		return none, s.err
	case !s.sent:
		return none, named(fmt.Errorf("%w: nothing was sent: %w", fault.Unavailable, errors.Join(err, ctx.Err())))
	case err != nil:
		return none, named(fmt.Errorf("%w: the answer cannot be read: %w", c.unknown(), err))
	}
	return v, nil
}

// unknown returns the kind for an answer that is not understood.
func (c Call) unknown() fault.Kind {
	if c.Write != nil {
		return fault.Uncertain
	}
	return fault.Unavailable
}

// Transport sends the requests of an SDK through Client.Do: within the budget, with the current token, to the Client's Endpoint, and one
// in each Call. It ignores the SDK's address and headers, except for X-Filter.
type Transport func(ctx context.Context, r Request, into any) error

// RoundTrip sends one request of a Call.
func (do Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	s, _ := req.Context().Value(sendingKey{}).(*sending)
	if s == nil {
		return nil, errors.New("the SDK has made a request outside of any call")
	}
	body, err := do.send(req, s)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: http.StatusText(http.StatusOK), StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(body)),
		Body: io.NopCloser(bytes.NewReader(body)), Request: req,
	}, nil
}

func (do Transport) send(req *http.Request, s *sending) (body []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent {
		s.err = Request{Doing: s.call.Doing}.named(fmt.Errorf("%w: %w", s.call.unknown(), errSecond))
		return nil, s.err
	}
	s.sent = true
	r := Request{
		Doing: s.call.Doing, Method: req.Method, Path: req.URL.Path, Query: req.URL.Query(), Filter: req.Header.Get("X-Filter"),
		Write: s.call.Write, Priority: s.call.Priority, NoContent: s.call.NoContent, Received: s.call.Received,
	}
	if req.Body != nil {
		sent, err := io.ReadAll(req.Body)
		_ = req.Body.Close()
		if err != nil {
			s.sent = false
			return nil, fmt.Errorf("read the request's body: %w", err)
		}
		if len(sent) > 0 {
			r.Body = json.RawMessage(sent)
		}
	}
	var answer json.RawMessage
	if s.err = do(req.Context(), r, &answer); s.err == nil {
		s.err = s.call.check(answer)
	}
	return answer, s.err
}

// check returns an error for an answer without the required content.
func (c Call) check(answer []byte) error {
	if c.NoContent {
		return nil
	}
	var err error
	for _, key := range c.Has {
		value, wrong := field(answer, key)
		if slices.Contains([]string{"", "null", "0", `""`}, string(value)) {
			wrong = cmp.Or(wrong, fmt.Errorf("the answer has no %s", key))
		}
		err = cmp.Or(err, wrong)
	}
	for key, want := range c.Is {
		value, wrong := field(answer, key)
		if string(value) != want {
			wrong = cmp.Or(wrong, fmt.Errorf("the answer has %.40s as its %s instead of %s", value, key, want))
		}
		err = cmp.Or(err, wrong)
	}
	var root map[string]json.RawMessage
	if c.Empty && (json.Unmarshal(answer, &root) != nil || root == nil || len(root) > 0) {
		err = errors.New("the answer is not the empty object that says that it was done")
	}
	if err != nil {
		return Request{Doing: c.Doing}.named(fmt.Errorf("%w: %w", c.unknown(), err))
	}
	return nil
}

// field returns the value of a key of an answer, such as action.id, or nil.
func field(value json.RawMessage, key string) (json.RawMessage, error) {
	for name := range strings.SplitSeq(key, ".") {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(value, &object); err != nil {
			return nil, err
		}
		for other := range object { // which decoders take for the same
			if other != name && strings.EqualFold(other, name) {
				return nil, fmt.Errorf("the answer has %s and %s", name, other)
			}
		}
		value = object[name]
	}
	return value, nil
}
