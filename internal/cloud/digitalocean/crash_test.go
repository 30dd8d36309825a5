package digitalocean_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

func origin(t *testing.T, c cloud.Cloud) cloud.VolumeID { return volume(t, c, "origin").ID }

func attached(t *testing.T, c cloud.Cloud) cloud.VolumeID {
	id := origin(t, c)
	attach(t, c, id, node1)
	return id
}

// crashed is an account for whose controllers every temporary snapshot is old enough to be swept.
type crashed struct{ *emulator.Cloud }

func (a crashed) Open(t *testing.T, around cloudtest.Around) cloud.Cloud {
	return open(t, a.Cloud, func(cfg *digitalocean.Config) {
		cfg.OrphanAge = time.Nanosecond
		cfg.Transport = cloudtest.OverHTTP(cfg.Transport, around)
	})
}

func (a crashed) Left(t *testing.T, c cloud.Cloud) (volumes, snapshots int) {
	must(t, c.(*digitalocean.Cloud).Sweep(t.Context()))
	return len(a.Volumes()), len(a.Snapshots())
}

func (a crashed) At(id cloud.VolumeID) cloud.NodeID {
	if vol, _ := a.Volume(string(id)); vol.DropletID != 0 {
		return cloud.NodeID(strconv.Itoa(vol.DropletID))
	}
	return ""
}

// changes are the requests that make each change. Where none has an operation, a fault of it delays or refuses the request.
var changes = map[cloudtest.Change]emulator.Fault{
	cloudtest.Create: {Method: "POST", Route: "/v2/volumes"},
	cloudtest.Attach: {Method: "POST", Route: actionsRoute, Body: `"attach"`},
	cloudtest.Detach: {Method: "POST", Route: actionsRoute, Body: `"detach"`},
	cloudtest.Expand: {Method: "POST", Route: actionsRoute, Body: `"resize"`},
	cloudtest.Delete: {Method: "DELETE", Route: "/v2/volumes/{volume_id}"},
}

func (a crashed) Arm(next cloudtest.Change, f cloudtest.Fault) (struck func() bool) {
	armed := changes[next]
	armed.Times, armed.Effect = 1, faults.Effect{
		Errored: f.Fail, Takes: clock.Fixed(f.Takes), Delay: clock.Fixed(f.Delay), DelayAnswer: clock.Fixed(f.DelayAnswer),
	}
	switch instant := next == cloudtest.Create || next == cloudtest.Delete; {
	case f.LoseRequest:
		armed.Lost = faults.LostBefore
	case f.LoseAnswer:
		armed.Lost = faults.LostAfter
	case f.Throttle:
		armed.Status = http.StatusTooManyRequests
	case f.Refuse != "":
		armed.Times, armed.Effect = 0, faults.Effect{Status: http.StatusUnprocessableEntity, Message: f.Refuse}
	case f.Fail && instant:
		armed.Effect = faults.Effect{Status: http.StatusUnprocessableEntity, Message: "the volume cannot be made"}
	case f.Takes > 0 && instant:
		armed.Effect = faults.Effect{Delay: clock.Fixed(f.Takes)}
	}
	hit := a.Cloud.Arm(armed)
	return func() bool { return hit.Hits() == 1 || f.Refuse != "" && hit.Hits() > 0 }
}

func (a crashed) Add(name string) (cloud.VolumeID, error) {
	id, err := a.AddVolume(emulator.Volume{Name: name, SizeGiB: 1, Region: emulator.DefaultRegion})
	return cloud.VolumeID(id), err
}

func (a crashed) Requests() (reads, writes int) { return a.Stats().Reads, a.Stats().Writes }

func (a crashed) StaleLists() {
	a.Cloud.Arm(emulator.Fault{Method: "GET", Route: "/v2/volumes", Effect: faults.Effect{StaleChanges: 2}})
}

func (a crashed) Remove(node cloud.NodeID, lag time.Duration) {
	n, _ := strconv.Atoi(string(node))
	a.RemoveDroplet(n, lag)
}

func crashes(lasts clock.Span, rules emulator.Rules) cloudtest.Crashes {
	return cloudtest.Crashes{
		Fresh: func(t *testing.T) cloudtest.Account {
			return crashed{start(t, emulator.Options{Durations: emulator.Actions(lasts), Rules: rules})}
		},
		Stack: stack, Request: request, Node: node1, Second: node2, Elsewhere: []string{"nyc2", "ams3"},
		Names: cloud.NameRule{MinLen: 1, MaxLen: 64, StartLetter: true}, Page: 200, Reads: 5,
		Device: func(vol cloud.Volume) cloud.Device {
			return cloud.Device{Name: "scsi-0DO_Volume_" + vol.Name, Serial: vol.Name}
		},
		HTTP: func(t *testing.T, account cloudtest.Account, over func(http.RoundTripper) http.RoundTripper) cloud.Cloud {
			return open(t, account.(crashed).Cloud, func(cfg *digitalocean.Config) { cfg.Transport = over(cfg.Transport) })
		},
	}
}

// C1, C2, A10: a controller is killed at each of its requests in turn, before and after the request's effect; a
// new one that is asked the same converges, and nothing is left or doubled.
func TestAControllerKilledAtAnyRequestIsContinuedByTheNext(t *testing.T) {
	crashes(clock.Fixed(2*time.Millisecond), emulator.Rules{}).Kill(t)
}

// A1: a detach that waited in a queue takes the volume off no machine that has got it meanwhile.
func TestADetachThatWaitedTakesNothingOffAnotherMachine(t *testing.T) {
	crashes(clock.Fixed(2*time.Millisecond), emulator.Rules{}).Waited(t)
}

// A1, A2, A3, A9, A11, C1, C5, E6, P1, P3, P5, P8: what goes wrong in the cloud, and what a controller answers then.
func TestWhatGoesWrongInTheCloud(t *testing.T) {
	for name, rules := range map[string]emulator.Rules{
		"changes show in the end": {}, "changes show before their end": {ChangeOnAccept: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crashes(clock.Fixed(2*time.Millisecond), rules).Faults(t)
		})
	}
}

// C1: two controllers on one account are asked the same at once: locks and queues of one process carry no correctness.
func TestTwoControllersAtOnceConverge(t *testing.T) {
	crashes(clock.Span{Least: time.Millisecond, Spread: 5 * time.Millisecond}, emulator.Rules{}).Race(t)
}
