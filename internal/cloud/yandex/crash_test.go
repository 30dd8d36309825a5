package yandex_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

func origin(t *testing.T, c cloud.Cloud) cloud.VolumeID { return volume(t, c, "origin").ID }

func attached(t *testing.T, c cloud.Cloud) cloud.VolumeID {
	id := origin(t, c)
	attach(t, c, id, node1)
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

// changes are the requests that make each change.
var changes = map[cloudtest.Change]string{
	cloudtest.Create: createDisk, cloudtest.Attach: attachDisk, cloudtest.Detach: detachDisk, cloudtest.Expand: updateDisk, cloudtest.Delete: deleteDisk,
}

func (f crashed) Arm(next cloudtest.Change, fault cloudtest.Fault) (struck func() bool) {
	armed := emulator.Fault{Route: changes[next], Times: 1, Effect: faults.Effect{
		Errored: fault.Fail, Takes: clock.Fixed(fault.Takes), Delay: clock.Fixed(fault.Delay), DelayAnswer: clock.Fixed(fault.DelayAnswer),
	}}
	switch {
	case fault.LoseRequest:
		armed.Lost = faults.LostBefore
	case fault.LoseAnswer:
		armed.Lost = faults.LostAfter
	case fault.Throttle:
		armed.Status, armed.Message = int(codes.ResourceExhausted), "Rate limit exceeded"
	case fault.Refuse != "":
		armed.Times, armed.Effect = 0, faults.Effect{Status: int(codes.FailedPrecondition), Message: fault.Refuse}
	}
	hit := f.Cloud.Arm(armed)
	return func() bool { return hit.Hits() == 1 || fault.Refuse != "" && hit.Hits() > 0 }
}

func (f crashed) Add(name string) (cloud.VolumeID, error) {
	id, err := f.AddDisk(emulator.Disk{Name: name})
	return cloud.VolumeID(id), err
}

func (f crashed) Requests() (reads, writes int) { return f.Stats().Reads, f.Stats().Writes }

func (f crashed) StaleLists() {
	f.Cloud.Arm(emulator.Fault{Route: "DiskService/List", Effect: faults.Effect{StaleChanges: 2}})
}

func (f crashed) Remove(node cloud.NodeID, lag time.Duration) { f.RemoveInstance(string(node), lag) }

func crashes(lasts clock.Span, rules emulator.Rules) cloudtest.Crashes {
	return cloudtest.Crashes{
		Fresh: func(t *testing.T) cloudtest.Account {
			return crashed{start(t, emulator.Options{Durations: emulator.Each(lasts), Rules: rules})}
		},
		Stack: stack, Request: request, Node: node1, Second: node2, Elsewhere: []string{"no-such-zone", "ru-central1-d"}, Simulated: true,
		Names: cloud.NameRule{MinLen: 1, MaxLen: 63, Underscore: true, StartLetter: true, EndAlnum: true}, Page: 1000, Reads: 8,
		Device: func(vol cloud.Volume) cloud.Device {
			return cloud.Device{Name: "virtio-" + string(vol.ID), Serial: string(vol.ID)}
		},
		NoHTTP: true, // FuzzAnswers has its answers
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

// A1, A2, A3, A9, A11, C1, C5, E4, P1: what goes wrong in the cloud, and what a controller answers then.
func TestWhatGoesWrongInTheCloud(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]emulator.Rules{
		"changes show in the end": {PagesByNumber: true}, "changes show before their end": {ChangeOnAccept: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crashes(clock.Fixed(2*time.Millisecond), rules).Faults(t)
		})
	}
}

// C1: two controllers on one folder are asked the same at once: locks and queues of one process carry no correctness.
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
