package real

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/recorded"
)

// Cassette records what a run says to the API and what that answers, without credentials. It is safe for use by several backends.
type Cassette struct {
	mu        sync.Mutex
	exchanges []recorded.Exchange
}

// keptHeaders are those of an answer that say how the API behaves. A request's are not recorded, but for X-Filter.
var keptHeaders = []string{
	"Content-Type", "Date", "Retry-After", "X-Accepted-Oauth-Scopes", "X-Oauth-Scopes",
	"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset",
}

// Around records the requests that base sends in a part of the run.
func (c *Cassette) Around(base http.RoundTripper, part string) http.RoundTripper {
	return recorder{c, base, part}
}

type recorder struct {
	cassette *Cassette
	base     http.RoundTripper
	part     string
}

func (r recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	e := recorded.Exchange{Method: req.Method, Path: req.URL.RequestURI(), Part: r.part}
	if filter := req.Header.Get("X-Filter"); filter != "" {
		e.Filter = &filter
	}
	if req.Body != nil {
		text, err := io.ReadAll(req.Body)
		if err := cmp.Or(err, req.Body.Close()); err != nil {
			return nil, err
		}
		e.Body = asJSON(text)
		req.Body = io.NopCloser(bytes.NewReader(text))
	}
	answer, err := r.base.RoundTrip(req)
	if err != nil {
		return answer, err // no answer: nothing of the API is recorded
	}
	text, err := io.ReadAll(answer.Body)
	if err := cmp.Or(err, answer.Body.Close()); err != nil {
		return nil, err
	}
	answer.Body = io.NopCloser(bytes.NewReader(text))
	e.Status, e.Answer, e.Header = answer.StatusCode, asJSON(text), http.Header{}
	for _, name := range keptHeaders {
		if values := answer.Header.Values(name); len(values) > 0 {
			e.Header[name] = values
		}
	}
	r.cassette.add(e)
	return answer, nil
}

// asJSON returns a body as JSON: what is none, such as a page of HTML, becomes a string.
func asJSON(text []byte) json.RawMessage {
	if len(text) == 0 || json.Valid(text) {
		return text
	}
	quoted, _ := json.Marshal(string(text)) // a string always has a form
	return quoted
}

// Interceptor records the requests by gRPC of a part of the run: the path is the method's, the status is the code.
func (c *Cassette) Interceptor(part string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, conn, opts...)
		state, is := status.FromError(err)
		if !is {
			return err
		}
		e := recorded.Exchange{Method: "gRPC", Path: method, Status: int(state.Code()), Body: messageJSON(req), Answer: messageJSON(reply), Part: part}
		if err != nil {
			e.Answer = messageJSON(state.Proto())
		}
		c.add(e)
		return err
	}
}

func messageJSON(m any) json.RawMessage {
	message, is := m.(proto.Message)
	if !is {
		return nil
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(message)
	if err != nil {
		return nil // an Any of a type that is not linked
	}
	return text
}

func (c *Cassette) add(e recorded.Exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exchanges = append(c.exchanges, e)
}

// Write writes the exchanges to a file in the form of test/kit/recorded, without what is the account's own: own begins the
// names that the run gave, which stay.
func (c *Cassette) Write(path, own string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := json.MarshalIndent(newScrubber(own, c.exchanges).all(), "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}
