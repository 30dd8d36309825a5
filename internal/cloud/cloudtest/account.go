package cloudtest

import (
	"net/http"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// Around is called for each request of a controller, with the function that sends it, and returns the request's error.
type Around func(send func() error) error

// Account is an emulated account of a cloud.
type Account interface {
	// Open returns a controller of the account; around, unless it is nil, wraps each of its requests.
	Open(t *testing.T, around Around) cloud.Cloud
	// Left returns how many volumes and snapshots the account has after the controller has removed temporary ones.
	Left(t *testing.T, c cloud.Cloud) (volumes, snapshots int)
	// At returns the node that the volume is attached to, or "".
	At(id cloud.VolumeID) cloud.NodeID
	// Arm applies the fault to the next request that makes this change, and to no other one unless the fault says so. struck
	// reports whether that has happened.
	Arm(next Change, f Fault) (struck func() bool)
	// Add creates a small volume of exactly this name in the first zone, as a user of the cloud would. It fails for a name that the
	// cloud does not allow.
	Add(name string) (cloud.VolumeID, error)
	// Requests returns how many requests all controllers have sent so far.
	Requests() (reads, writes int)
	// StaleLists makes lists of volumes show the account as it was two changes ago, from now on.
	StaleLists()
	// Remove deletes a node. The records of its volumes name it for the duration lag.
	Remove(node cloud.NodeID, lag time.Duration)
}

// Change is a kind of request that changes a volume.
type Change string

// The changes that a Fault can be armed on.
const (
	Create Change = "create"
	Attach Change = "attach"
	Detach Change = "detach"
	Expand Change = "expand"
	Delete Change = "delete"
)

// Fault is what an account does to one request.
type Fault struct {
	// LoseRequest and LoseAnswer cut the connection, before the request takes effect and after it.
	LoseRequest, LoseAnswer bool
	// Throttle refuses the request for exceeding the rate limit (HTTP 429). The next one is accepted.
	Throttle bool
	// Fail makes the operation of the request fail. A change without an operation is refused.
	Fail bool
	// Refuse refuses each such request from now on with this message, as the cloud does for reasons that its API does not show.
	Refuse string
	// Takes is how long that operation runs. A change without an operation takes effect that late.
	Takes time.Duration
	// Delay passes before the request takes effect, and DelayAnswer after it, even if the caller's context has ended.
	Delay, DelayAnswer time.Duration
}

// OverHTTP wraps the requests of a transport in around, which may be nil.
func OverHTTP(base http.RoundTripper, around Around) http.RoundTripper {
	if around == nil {
		return base
	}
	return RoundTripper(func(r *http.Request) (res *http.Response, err error) {
		err = around(func() error {
			res, err = base.RoundTrip(r) //nolint:bodyclose // the caller closes it, or it is closed below
			return err
		})
		if err != nil && res != nil {
			_ = res.Body.Close()
			res = nil
		}
		return res, err
	})
}

// RoundTripper is a function as a transport.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Before calls a function with each request before it is sent.
func Before(base http.RoundTripper, do func(r *http.Request)) http.RoundTripper {
	return RoundTripper(func(r *http.Request) (*http.Response, error) {
		do(r)
		return base.RoundTrip(r)
	})
}
