package remote

import (
	"fmt"
	"net/http"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// DefaultTransport returns a transport that does not wait for ever. A caller adds what it needs, such as
// certificates of its own.
func DefaultTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = AnswerTimeout
	// One request stands for one change, and many are made at once.
	t.MaxIdleConnsPerHost = 32
	return t
}

// Sender puts the token on each request and sends it. It stands below the budget: what comes here is
// sent now.
type Sender struct {
	// Base sends.
	Base http.RoundTripper
	// Token returns the API token, asked for with each request, so that a new one is used at once.
	Token func() (string, error)
}

// RoundTrip sends a request. A write that was sent is not broken off when its caller goes: the
// connection would be cut while the cloud acts on it, and nobody would know whether it has.
func (s *Sender) RoundTrip(req *http.Request) (*http.Response, error) {
	token, err := s.Token()
	if err != nil {
		return nil, fmt.Errorf("%w: the API token cannot be read: %w", fault.Unavailable, err)
	}
	ctx, back, err := Leave(req.Context())
	if err != nil {
		return nil, err
	}
	req = req.Clone(ctx)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := s.Base.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests {
		back()
	}
	return resp, err
}

// NoRedirect keeps the token at the address that it was meant for. It is a CheckRedirect of http.Client.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
