package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// The maximum length of an answer, after decompression. The longest valid one is a page of 200 actions with their regions: about 600 KB.
// gRPC has the same limit of 4 MiB.
const (
	maxBody  = 4 << 20
	maxError = 64 << 10
)

// reading limits how many answers are read and decoded at once: 64 MiB together, in a container with 256.
var reading = make(chan struct{}, 64<<20/maxBody)

// Bounded is a transport that limits the length of answers: reading a longer body is an error.
type Bounded struct{ Base http.RoundTripper }

// RoundTrip sends a request. It waits for a slot of reading before the answer is read, and the answer keeps the slot until it is closed or
// the call of an SDK has returned (Through).
func (b Bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.Base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		resp.Body = &bounded{ReadCloser: resp.Body, left: maxError, limit: maxError, leave: func() {}}
		return resp, nil
	}
	select {
	case reading <- struct{}{}:
	case <-req.Context().Done():
		return nil, errors.Join(context.Cause(req.Context()), resp.Body.Close())
	}
	leave := sync.OnceFunc(func() { <-reading })
	if s, through := req.Context().Value(sendingKey{}).(*sending); through {
		s.leave, leave = leave, func() {}
	}
	resp.Body = &bounded{ReadCloser: resp.Body, left: maxBody, limit: maxBody, leave: leave}
	return resp, nil
}

type bounded struct {
	io.ReadCloser
	left, limit int64
	leave       func()
}

func (b *bounded) Close() error {
	defer b.leave()
	return b.ReadCloser.Close()
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		if n, err := b.ReadCloser.Read(make([]byte, 1)); n == 0 {
			return 0, err
		}
		return 0, fmt.Errorf("the answer has more than %d bytes", b.limit)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
