package driver_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
)

// Waiting calls take memory, so their number is limited. A call beyond the limit is refused at once, probes are still answered, and
// when a call ends the next is accepted.
func TestCallsBeyondTheBoundAreRefused(t *testing.T) {
	const bound, more = 2000, 50
	leave, entered := make(chan struct{}), atomic.Int64{}
	r := start(t, handlers{create: func(context.Context, *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
		entered.Add(1)
		<-leave
		return &csi.CreateVolumeResponse{}, nil
	}}, nil)
	create := func() error {
		_, err := csi.NewControllerClient(r.conn).CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "v"})
		return err
	}
	results := make(chan error, bound+more)
	var all sync.WaitGroup
	for range bound + more {
		all.Go(func() { results <- create() })
	}
	for range more {
		if err := <-results; status.Code(err) != codes.Unavailable {
			t.Errorf("a call beyond the bound = %v, want %v", err, codes.Unavailable)
		}
	}
	drivertest.Ready(t, r.conn)
	close(leave)
	all.Wait()
	for range bound {
		if err := <-results; err != nil {
			t.Errorf("a call within the bound = %v, want OK", err)
		}
	}
	if got := entered.Load(); got != bound {
		t.Errorf("%d calls were served, want %d", got, bound)
	}
	if err := create(); err != nil {
		t.Errorf("a call after the others have ended = %v, want OK", err)
	}
}
