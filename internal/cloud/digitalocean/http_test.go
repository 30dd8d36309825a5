package digitalocean_test

import "net/http"

type (
	httpRequest  = http.Request
	httpResponse = http.Response
)

// roundTripper is a transport made of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
