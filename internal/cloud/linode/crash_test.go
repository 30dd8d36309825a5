package linode_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// crashed is an account for whose controllers every unfinished copy is old enough to be swept.
type crashed struct {
	*emulator.Cloud

	snapshots bool // its controllers keep clones as snapshots
}

func (a crashed) Open(t *testing.T, around cloudtest.Around) cloud.Cloud {
	return open(t, a.Cloud, func(cfg *linode.Config) {
		cfg.OrphanAge, cfg.Lateness, cfg.Snapshots = time.Nanosecond, time.Millisecond, a.snapshots
		cfg.Transport = cloudtest.OverHTTP(cfg.Transport, around)
	})
}

func (a crashed) Left(t *testing.T, c cloud.Cloud) (volumes, snapshots int) {
	for range 2 { // the first has not seen any yet
		must(t, c.(*linode.Cloud).Sweep(t.Context()))
	}
	for _, v := range a.Volumes() {
		switch {
		case v.Status == "deleting": // which ends by itself
		case strings.HasPrefix(v.Label, "snap_"):
			snapshots++
		default:
			volumes++
		}
	}
	return volumes, snapshots
}

func (a crashed) At(id cloud.VolumeID) cloud.NodeID {
	n, _ := strconv.Atoi(string(id))
	if vol, _ := a.Volume(n); vol.Linode != 0 {
		return cloud.NodeID(strconv.Itoa(vol.Linode))
	}
	return ""
}

// changes are the requests that make each change.
var changes = map[cloudtest.Change]emulator.Fault{
	cloudtest.Create: {Method: "POST", Route: volumesRoute},
	cloudtest.Attach: {Method: "POST", Route: attachRoute},
	cloudtest.Detach: {Method: "POST", Route: detachRoute},
	cloudtest.Expand: {Method: "POST", Route: resizeRoute},
	cloudtest.Delete: {Method: "DELETE", Route: volumeRoute},
}

func (a crashed) Arm(next cloudtest.Change, f cloudtest.Fault) (struck func() bool) {
	armed := changes[next]
	armed.Times, armed.Effect = 1, faults.Effect{
		Errored: f.Fail, Takes: clock.Fixed(f.Takes), Delay: clock.Fixed(f.Delay), DelayAnswer: clock.Fixed(f.DelayAnswer),
	}
	switch {
	case f.LoseRequest:
		armed.Lost = faults.LostBefore
	case f.LoseAnswer:
		armed.Lost = faults.LostAfter
	case f.Throttle:
		armed.Status = http.StatusTooManyRequests
	case f.Refuse != "":
		armed.Times, armed.Effect = 0, faults.Effect{Status: http.StatusBadRequest, Message: f.Refuse}
	}
	hit := a.Cloud.Arm(armed)
	return func() bool { return hit.Hits() == 1 || f.Refuse != "" && hit.Hits() > 0 }
}

func (a crashed) Add(name string) (cloud.VolumeID, error) {
	id, err := a.AddVolume(emulator.Volume{Label: name})
	return cloud.VolumeID(strconv.Itoa(id)), err
}

func (a crashed) Requests() (reads, writes int) { return a.Stats().Reads, a.Stats().Writes }

func (a crashed) StaleLists() {
	a.Cloud.Arm(emulator.Fault{Method: "GET", Route: volumesRoute, Effect: faults.Effect{StaleChanges: 2}})
}

func (a crashed) Remove(node cloud.NodeID, lag time.Duration) {
	n, _ := strconv.Atoi(string(node))
	a.RemoveLinode(n, lag)
}

func crashes(lasts clock.Span, rules emulator.Rules) cloudtest.Crashes {
	return cloudtest.Crashes{
		Fresh: func(t *testing.T) cloudtest.Account {
			opts := emulator.Options{Durations: emulator.Each(lasts), Rules: rules}
			opts.Durations.Delete = lasts
			return crashed{Cloud: start(t, opts)}
		},
		Stack: stack, Request: request, Node: node1, Second: node2, Elsewhere: []string{"us-den-edge-1", "us-east"},
		Names: cloud.NameRule{MinLen: 1, MaxLen: 32, Upper: true, Underscore: true, StartLetter: true, NoDoubles: true}, Page: 500, Reads: 8,
		Device: func(vol cloud.Volume) cloud.Device {
			return cloud.Device{Name: "scsi-0Linode_Volume_" + vol.Name, Serial: vol.Name}
		},
		HTTP: func(t *testing.T, account cloudtest.Account, over func(http.RoundTripper) http.RoundTripper) cloud.Cloud {
			a := account.(crashed)
			return open(t, a.Cloud, func(cfg *linode.Config) { cfg.Transport, cfg.Snapshots = over(cfg.Transport), a.snapshots })
		},
		Empty: []cloudtest.Change{cloudtest.Detach, cloudtest.Delete},
	}
}

// withSnapshots makes controllers keep clones as snapshots. An attach then reads the volume first.
func withSnapshots(cr cloudtest.Crashes) cloudtest.Crashes {
	fresh := cr.Fresh
	cr.Reads++
	cr.Fresh = func(t *testing.T) cloudtest.Account { return crashed{fresh(t).(crashed).Cloud, true} }
	return cr
}

// strict are answers that nothing public rules out.
var strict = emulator.Rules{DetachOfFreeRefused: true, ResizeToSameRefused: true, AttachWhileCreatingRefused: true, OneChangePerLinode: true}

// worlds are the accounts that controllers are killed in and that they share.
var worlds = map[string]emulator.Rules{
	"as far as is known": {},
	"stricter answers":   strict,
	"no slots":           {ConfigSlots: 1},
	clonesAsSnapshots:    {},
}

// clonesAsSnapshots is the world whose controllers keep them.
const clonesAsSnapshots = "clones as snapshots"

// in returns the crashes in a world. -short runs the usual one, and that with snapshots.
func in(t *testing.T, world, usual string, cr cloudtest.Crashes) cloudtest.Crashes {
	t.Helper()
	switch {
	case world == clonesAsSnapshots:
		return withSnapshots(cr)
	case testing.Short() && world != usual:
		t.Skip("-short runs one variant of the emulated account; make verify runs all")
	}
	return cr
}

// C1, A10: a controller is killed at each of its requests in turn, before and after the request's effect; a new
// one that is asked the same converges, and nothing is left or doubled.
func TestAControllerKilledAtAnyRequestIsContinuedByTheNext(t *testing.T) {
	for name, rules := range worlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, name, "as far as is known", crashes(clock.Fixed(2*time.Millisecond), rules)).Kill(t)
		})
	}
}

// A1: a detach that waited in a queue takes the volume off no machine that has got it meanwhile.
func TestADetachThatWaitedTakesNothingOffAnotherMachine(t *testing.T) {
	crashes(clock.Fixed(2*time.Millisecond), emulator.Rules{}).Waited(t)
}

// A1, A2, A3, A9, A11, C1, P1, P5, P8: what goes wrong in the cloud, and what a controller answers then.
func TestWhatGoesWrongInTheCloud(t *testing.T) {
	for name, rules := range map[string]emulator.Rules{
		"stricter answers": strict, "a device that shows as it goes": {ReadyWhileDetaching: true}, clonesAsSnapshots: strict,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, name, "stricter answers", crashes(clock.Fixed(2*time.Millisecond), rules)).Faults(t)
		})
	}
}

// C1: two controllers on one account are asked the same at once: locks and queues of one process carry no correctness.
func TestTwoControllersAtOnceConverge(t *testing.T) {
	for name, rules := range worlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, name, "as far as is known", crashes(clock.Span{Least: time.Millisecond, Spread: 5 * time.Millisecond}, rules)).Race(t)
		})
	}
}

// roundTripper is a transport made of a function.
type roundTripper = cloudtest.RoundTripper

// C1: a volume that was just created and that no read shows yet exists. No refusal of the repeat makes the caller forget it.
func TestAVolumeThatNoReadShowsYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		c := stack(open(t, account))
		account.Arm(emulator.Fault{Method: "GET", Effect: faults.Effect{StaleAge: clock.Fixed(4 * time.Second)}})
		want(t, second(c.CreateVolume(t.Context(), request("ab"))), fault.Uncertain)
		account.Arm(emulator.Fault{Method: "POST", Route: volumesRoute, Times: 1, Effect: faults.Effect{Status: http.StatusForbidden}})
		want(t, second(c.CreateVolume(t.Context(), request("ab"))), fault.Uncertain)
		time.Sleep(10 * time.Second)
		must(t, second(c.CreateVolume(t.Context(), request("ab"))))
		if n := len(account.Volumes()); n != 1 {
			t.Errorf("there are %d volumes, want one", n)
		}
	})
}
