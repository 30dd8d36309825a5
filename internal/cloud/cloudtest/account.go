package cloudtest

import (
	"net/http"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// Around is called for each request of a controller, with what sends it, and returns what came of it.
type Around func(send func() error) error

// Account is an emulated account of a cloud.
type Account interface {
	// Open makes a controller of it; around, unless it is nil, is put around each of its requests.
	Open(t *testing.T, around Around) cloud.Cloud
	// Left is how many volumes and snapshots it holds, when the controller has tidied up.
	Left(t *testing.T, c cloud.Cloud) (volumes, snapshots int)
	// At is the node that the volume is on, or "".
	At(id cloud.VolumeID) cloud.NodeID
	// Arm lets the fault strike the next request that makes this change, and no other one but where it says so. struck reports
	// whether it has.
	Arm(next Change, f Fault) (struck func() bool)
	// Add makes a small volume of exactly this name in the first zone, as a user of the cloud would. It fails for a name that the
	// cloud does not allow.
	Add(name string) (cloud.VolumeID, error)
	// Requests counts those of all controllers so far.
	Requests() (reads, writes int)
	// StaleLists lets lists of volumes show the account as it was two changes ago, from now on.
	StaleLists()
	// Remove destroys a machine. The records of its volumes name it for as long as lag.
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
	// LoseRequest and LoseAnswer cut the connection, before the request has its effect and after it.
	LoseRequest, LoseAnswer bool
	// Throttle refuses the request as one too many for now, as the API does (HTTP 429). The next one is accepted.
	Throttle bool
	// Fail lets the operation that the request begins end in an error. Where the change has none, the request is refused.
	Fail bool
	// Refuse refuses each such request from now on, with these words, as the cloud does for reasons that it does not show.
	Refuse string
	// Takes is how long that operation runs. Where the change has none, how late the request has its effect.
	Takes time.Duration
	// Delay passes before the request has its effect, and DelayAnswer after it, also when the caller has gone.
	Delay, DelayAnswer time.Duration
}

// OverHTTP puts something around the requests of a transport. Nil: nothing.
func OverHTTP(base http.RoundTripper, around Around) http.RoundTripper {
	if around == nil {
		return base
	}
	return RoundTripper(func(r *http.Request) (res *http.Response, err error) {
		err = around(func() error {
			res, err = base.RoundTrip(r) //nolint:bodyclose // it is the caller's, or closed below
			return err
		})
		if err != nil && res != nil {
			_ = res.Body.Close()
			res = nil
		}
		return res, err
	})
}

// RoundTripper is a transport made of a function.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
