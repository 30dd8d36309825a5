//go:build e2e

package monitoring

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

const (
	// machines take ten volumes each, and a few more while volumes move.
	volumes, machines = 200, 20
	// moved is how many volumes change their machine while the API fails.
	moved = 20
	// As in the manifests: --worker-threads of csi-provisioner, and --timeout. They wait firstPause after a failed call, and twice as
	// long after each further one, up to maxPause: --retry-interval-max made shorter, as the times of the rules are.
	atOnce      = 100
	callTimeout = 5 * time.Minute
	firstPause  = time.Second
	maxPause    = 5 * time.Second
)

// load makes the calls of the sidecars for many volumes.
type load struct {
	client  csi.ControllerClient
	account accounts.Account
	size    int64
	on      []string
	ids     [volumes]string
}

func newLoad(s *site) *load {
	return &load{client: csi.NewControllerClient(s.cloud.Controller.Conn), account: s.account, size: s.account.Size(), on: s.account.Machines()[:machines]}
}

// begin does something with the volumes from one number up to another, many at once. wait returns when it is done.
func (s *site) begin(t *testing.T, from, to int, what string, do func(ctx context.Context, number int) error) (wait func()) {
	t.Helper()
	ctx, numbers, failed := t.Context(), make(chan int, to-from), make(chan error, to-from)
	for number := from; number < to; number++ {
		numbers <- number
	}
	close(numbers)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for number := range numbers {
				failed <- do(ctx, number)
			}
		})
	}
	what = fmt.Sprintf("%d volumes are %s", to-from, what)
	end, done := s.recording.begin("load", what), make(chan struct{})
	go func() {
		workers.Wait()
		end()
		close(failed)
		close(done)
	}()
	return func() {
		t.Helper()
		<-done
		var errs []error
		for err := range failed {
			errs = append(errs, err)
		}
		must(t, errors.Join(errs...))
		t.Log(what)
	}
}

// attached creates a volume and attaches it.
func (l *load) attached(ctx context.Context, number int) error {
	err := repeat(ctx, func(ctx context.Context) error {
		answer, err := l.client.CreateVolume(ctx, &csi.CreateVolumeRequest{
			Name: fmt.Sprintf("claim-%d", number), CapacityRange: &csi.CapacityRange{RequiredBytes: l.size},
			VolumeCapabilities: []*csi.VolumeCapability{capability},
		})
		l.ids[number] = answer.GetVolume().GetVolumeId()
		return err
	})
	return errors.Join(err, l.attach(ctx, number, number))
}

// moved takes a volume to the machine after its own.
func (l *load) moved(ctx context.Context, number int) error {
	return errors.Join(l.detach(ctx, number, number), l.attach(ctx, number, number+1))
}

// deleted detaches a volume wherever it is, and deletes it.
func (l *load) deleted(ctx context.Context, number int) error {
	on := number
	if number < moved {
		on++
	}
	return errors.Join(l.detach(ctx, number, on), repeat(ctx, func(ctx context.Context) error {
		_, err := l.client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: l.ids[number]})
		return err
	}))
}

func (l *load) attach(ctx context.Context, number, machine int) error {
	return repeat(ctx, func(ctx context.Context) error {
		_, err := l.client.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
			VolumeId: l.ids[number], NodeId: l.on[machine%machines], VolumeCapability: capability,
		})
		return err
	})
}

func (l *load) detach(ctx context.Context, number, machine int) error {
	return repeat(ctx, func(ctx context.Context) error {
		_, err := l.client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: l.ids[number], NodeId: l.on[machine%machines]})
		return err
	})
}

var capability = programs.Claim{Filesystem: "ext4"}.Capability()

// repeat makes a call until it succeeds.
func repeat(ctx context.Context, call func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		err := call(bounded)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// gone: nothing is left in the account, and no call broke a rule of the API.
func (l *load) gone(t *testing.T) {
	t.Helper()
	if left := accounts.Left(l.account); len(left) > 0 {
		t.Errorf("%d objects are left in the account: %v", len(left), left)
	}
	if wrong := accounts.Wrong(l.account); len(wrong) > 0 {
		t.Errorf("the API was used wrongly: %v", wrong)
	}
}
