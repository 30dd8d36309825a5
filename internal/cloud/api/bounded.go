package api

import (
	"fmt"
	"io"
	"net/http"
)

// The bounds of one answer, after decompression. The longest legal one is a page of 200 actions, each with its
// region: some 600 KB.
const (
	maxBody  = 32 << 20
	maxError = 64 << 10
)

// Bounded is a transport whose answers end: reading a body beyond the bound is an error.
type Bounded struct{ Base http.RoundTripper }

// RoundTrip sends a request.
func (b Bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.Base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	limit := int64(maxBody)
	if resp.StatusCode >= 300 {
		limit = maxError
	}
	resp.Body = &bounded{ReadCloser: resp.Body, left: limit, limit: limit}
	return resp, nil
}

type bounded struct {
	io.ReadCloser
	left, limit int64
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
