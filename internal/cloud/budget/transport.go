package budget

import "net/http"

// Route is what a request counts as.
type Route struct {
	// Template is the path with names for ids, such as /v2/volumes/{id}: a label of metrics, so
	// there are few of them.
	Template string
	// Governor has the budget of the request. Nil: it is sent at once.
	Governor *Governor
}

// Transport sends requests when the budget allows it. It never repeats a request that may have been
// carried out: only one that was refused for want of budget, which proves that it was not, and whose
// body can be sent again. Every other answer and error is returned as it came; what a repeat is worth
// then is for the layers above to know.
//
// If the context ends before a request was sent, or sent again, the error carries fault.Unavailable
// and nothing was changed. An http.Client above must have no Timeout of its own: it would hide the
// error and count the waiting.
type Transport struct {
	// Base sends; nil means http.DefaultTransport.
	Base http.RoundTripper
	// Route says what a request counts as. Nil: no budget, the path is not told.
	Route func(*http.Request) Route
	// Rate reads what an answer says about the budget; StandardRate suits most clouds and is used
	// if this is nil.
	Rate func(*http.Response) Rate
	// Refused reports whether an answer with status 429 is one of the budget, and not a rule about
	// what was asked for, which a repeat would only meet again. body is at most 64 KiB of the
	// answer's. Nil: every 429 is.
	Refused func(resp *http.Response, body []byte) bool
	// Metrics may be nil.
	Metrics *Metrics
}

// RoundTrip sends the request.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) { return nil, nil }

// StandardRate reads ratelimit-limit, -remaining and -reset (with or without "X-", the reset as
// seconds of the epoch or from now) and retry-after.
func StandardRate(resp *http.Response) Rate { return Rate{} }
