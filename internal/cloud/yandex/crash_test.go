package yandex_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/yandex"
)

func origin(t *testing.T, c cloud.Cloud) cloud.VolumeID { return volume(t, c, "origin").ID }

func attached(t *testing.T, c cloud.Cloud) cloud.VolumeID {
	id := origin(t, c)
	_, err := c.Attach(t.Context(), id, node1)
	must(t, err)
	return id
}

// crashed is a folder for whose controllers every temporary snapshot is old enough to be swept.
type crashed struct{ *emulator.Cloud }

func (f crashed) Open(t *testing.T, around cloudtest.Around) cloud.Cloud {
	return open(t, f.Cloud, func(cfg *yandex.Config) {
		cfg.OrphanAge = time.Nanosecond
		if around == nil {
			return
		}
		cfg.Around = func(ctx context.Context, method string, ask, answer any, conn *grpc.ClientConn, send grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return around(func() error { return send(ctx, method, ask, answer, conn, opts...) })
		}
	})
}

func (f crashed) Left(t *testing.T, c cloud.Cloud) (volumes, snapshots int) {
	must(t, c.(*yandex.Cloud).Sweep(t.Context()))
	return len(f.Disks()), len(f.Snapshots())
}

func (f crashed) At(id cloud.VolumeID) cloud.NodeID {
	d, _ := f.Disk(string(id))
	return cloud.NodeID(d.Instance)
}

func crashes(lasts clock.Span, rules emulator.Rules) cloudtest.Crashes {
	return cloudtest.Crashes{
		Fresh: func(t *testing.T) cloudtest.Account {
			return crashed{start(t, emulator.Options{Durations: emulator.Each(lasts), Rules: rules})}
		},
		Stack: stack, Request: request, Node: node1, Second: node2, Elsewhere: []string{"no-such-zone", "ru-central1-d"}, Simulated: true,
	}
}

// worlds are the ways in which a folder may treat names and keys.
var worlds = map[string]emulator.Rules{
	"names are unique":   {},
	"names repeat":       {NamesRepeat: true},
	"keys are forgotten": {KeysForgottenAfter: clock.Fixed(time.Millisecond)},
}

// C1, C2, A10: a controller is killed at each of its requests in turn, before and after the request's effect; a new
// one that is asked the same converges, and nothing is left or doubled.
func TestAControllerKilledAtAnyRequestIsContinuedByTheNext(t *testing.T) {
	t.Parallel()
	for world, rules := range worlds {
		t.Run(world, func(t *testing.T) {
			if testing.Short() && world != "names are unique" {
				t.Skip("make verify runs every variant")
			}
			t.Parallel()
			crashes(clock.Fixed(2*time.Millisecond), rules).Kill(t)
		})
	}
}

// A1: a detach that waited in a queue takes the volume off no machine that has got it meanwhile.
func TestADetachThatWaitedTakesNothingOffAnotherMachine(t *testing.T) {
	crashes(clock.Fixed(2*time.Millisecond), emulator.Rules{}).Waited(t)
}

// Two controllers on one folder are asked the same at once: locks and queues of one process carry no
// correctness.
func TestTwoControllersAtOnceConverge(t *testing.T) {
	t.Parallel()
	for world, rules := range worlds {
		t.Run(world, func(t *testing.T) {
			if testing.Short() && world != "names are unique" {
				t.Skip("make verify runs every variant")
			}
			t.Parallel()
			crashes(clock.Span{Least: time.Millisecond, Spread: 5 * time.Millisecond}, rules).Race(t)
		})
	}
}
