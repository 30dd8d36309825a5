// Package cloudtest checks that a cloud.Cloud fulfils the contract. Each subtest is named after the sentence of internal/cloud that
// it checks, and every backend passes all of them, bare and inside the decorators. There is no list of exceptions: the suite reads
// from Capabilities what a backend cannot do, and then requires fault.Unsupported.
//
// Only _test.go files import this package, so only tests link its dependency goleak.
package cloudtest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Harness is what the suite needs for a backend and cannot make itself.
type Harness struct {
	// New returns the cloud under test, without any volume or snapshot. It is called once for each subtest and cleans up with
	// t.Cleanup.
	New func(t *testing.T) cloud.Cloud
	// Pair returns two clusters that share one account. Nil: the backend has no clusters.
	Pair func(t *testing.T) (a, b cloud.Cloud)
	// Denied returns a cloud with credentials that are not accepted. Nil: there are no credentials.
	Denied func(t *testing.T) cloud.Cloud
	// InUse puts a volume of the newest cloud in use until release is called. It is required for a backend without Attach; nil if
	// the backend cannot detect use.
	InUse func(t *testing.T, id cloud.VolumeID) (release func())

	// Unfit makes snapshots of a volume of the newest cloud impossible until fit is called. Nil if every volume can be snapshotted
	// at any time.
	Unfit func(t *testing.T, id cloud.VolumeID) (fit func())
	// Sick damages a volume of the newest cloud, and returns the Health that it must have. Nil if the harness cannot.
	Sick func(t *testing.T, id cloud.VolumeID) cloud.Health
	// Elsewhere has ids of another place of the same kind. Zero: there is no other place.
	Elsewhere Elsewhere

	// Zones are zones that the backend serves, at least one. With two, the choice of the zone is checked.
	Zones []string
	// Nodes are two nodes in the first zone. Required with Attach.
	Nodes []cloud.NodeID
	// Slots is the attach limit of the first node. Zero: no limit is checked.
	Slots int
	// Parameters are values that the backend accepts, sorted by name.
	Parameters []cloud.Parameter
	// Size is the size of the suite's volumes. Zero: Capabilities.SmallestVolume.
	Size cloud.Bytes

	// Idempotent: the cloud is inside middleware.Stack, so a repeated create returns the existing volume. Otherwise a taken name is
	// fault.Conflict.
	Idempotent bool
	// Lag is how far the reads of the backend may lag behind its writes.
	Lag time.Duration
	// CapacitySlack is how much the available space changes by itself, because others use it too.
	CapacitySlack cloud.Bytes
	// Slow makes the suite do fewer rounds, for backends whose calls take real time.
	Slow bool
	// Simulated runs each subtest in simulated time, for backends that reach nothing outside of the process. Requests have to take
	// some simulated time: the suite also ends contexts during them.
	Simulated bool
	// Patience is how long the suite waits for an expected event. Zero: 30 seconds.
	Patience time.Duration
	// Requests returns how many requests left the program so far. Nil: none ever do.
	Requests func() int
}

// InStack returns the harness of the same backend inside the program's decorators. There a refused create is followed by a read of
// its name, so requests are not counted.
func (h Harness) InStack(stack func(cloud.Cloud) cloud.Cloud) Harness {
	one := func(open func(t *testing.T) cloud.Cloud) func(t *testing.T) cloud.Cloud {
		if open == nil {
			return nil
		}
		return func(t *testing.T) cloud.Cloud { return stack(open(t)) }
	}
	h.New, h.Denied = one(h.New), one(h.Denied)
	if pair := h.Pair; pair != nil {
		h.Pair = func(t *testing.T) (a, b cloud.Cloud) {
			a, b = pair(t)
			return stack(a), stack(b)
		}
	}
	h.Idempotent, h.Requests = true, nil
	return h
}

// Run checks the whole contract.
func Run(t *testing.T, h Harness) {
	if h.Patience == 0 {
		h.Patience = 30 * time.Second
	}
	if len(h.Zones) == 0 {
		t.Fatal("the harness names no zone")
	}
	t.Run("Capabilities", h.testCapabilities)
	t.Run("Capacity", h.testCapacity)
	t.Run("Check", h.testCheck)
	t.Run("CreateVolume", h.testCreate)
	t.Run("Copies", h.testCopies)
	t.Run("Names", h.testNames)
	t.Run("FindVolume", h.testFind)
	t.Run("GetVolume", h.testGet)
	t.Run("DeleteVolume", h.testDelete)
	t.Run("ListVolumes", h.testList)
	t.Run("ExpandVolume", h.testExpand)
	t.Run("ModifyVolume", h.testModify)
	t.Run("Attach", h.testAttach)
	t.Run("Detach", h.testDetach)
	t.Run("Snapshots", h.testSnapshots)
	t.Run("SnapshotZones", h.testSnapshotZones)
	t.Run("ListSnapshots", h.testListSnapshots)
	t.Run("Health", h.testHealth)
	t.Run("Elsewhere", h.testElsewhere)
	t.Run("Ids", h.testIDs)
	t.Run("Contexts", h.testContexts)
	t.Run("Concurrency", h.testConcurrency)
	t.Run("Clusters", h.testClusters)
}

// env is one subtest with its own cloud.
type env struct {
	*testing.T

	h    Harness
	c    cloud.Cloud
	caps cloud.Capabilities
	size cloud.Bytes
}

// check runs one subtest with its own cloud.
func (h Harness) check(t *testing.T, sentence string, test func(e *env)) {
	t.Helper()
	h.run(t, sentence, func(t *testing.T) { test(h.env(t, h.New(t))) })
}

// run runs one subtest. None of its goroutines may run after its cleanup.
func (h Harness) run(t *testing.T, sentence string, test func(t *testing.T)) {
	t.Helper()
	t.Run(sentence, func(t *testing.T) {
		if h.Simulated {
			synctest.Test(t, test) // panics if a goroutine is still running
			return
		}
		running := goleak.IgnoreCurrent()
		t.Cleanup(func() { goleak.VerifyNone(t, running) }) // registered first, so it runs after the backend's own
		test(t)
	})
}

func (h Harness) env(t *testing.T, c cloud.Cloud) *env {
	e := &env{T: t, h: h, caps: c.Capabilities(), size: h.Size}
	e.c = &checked{Cloud: c, t: t, lag: h.Lag}
	if e.size == 0 {
		e.size = e.caps.SmallestVolume
	}
	return e
}

// request returns a request for a small blank volume in the first zone.
func (e *env) request(name string) cloud.CreateVolumeRequest {
	return cloud.CreateVolumeRequest{Name: name, Size: e.size, Zones: e.h.Zones[:1]}
}

// volume creates a small blank volume.
func (e *env) volume(name string) cloud.Volume {
	e.Helper()
	return e.create(e.request(name))
}

// create creates a volume and ends the test if that fails.
func (e *env) create(req cloud.CreateVolumeRequest) cloud.Volume {
	e.Helper()
	vol, err := e.settle(req)
	if err != nil {
		e.Fatalf("CreateVolume(%q) = %v, want a volume", req.Name, err)
	}
	return vol
}

// settle repeats a create until its answer is final, as an orchestrator does. Inside the decorators that is enough; for a bare
// backend whose answer is that the name is taken, it reads the volume with the name.
func (e *env) settle(req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	return settle(e, func() (cloud.Volume, error) { return e.c.CreateVolume(e.Context(), req) },
		func() (cloud.Volume, error) { return e.c.FindVolume(e.Context(), req.Name) })
}

// settleSnapshot is settle for a snapshot.
func (e *env) settleSnapshot(req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	return settle(e, func() (cloud.Snapshot, error) { return e.c.CreateSnapshot(e.Context(), req) },
		func() (cloud.Snapshot, error) { return e.c.FindSnapshot(e.Context(), req.Name) })
}

func settle[T any](e *env, create, find func() (T, error)) (T, error) {
	return until(e, func() (T, error) {
		made, err := create()
		if e.h.Idempotent || !errors.Is(err, fault.Conflict) && !errors.Is(err, fault.Uncertain) {
			return made, err
		}
		found, findErr := find()
		if errors.Is(findErr, fault.NotFound) && errors.Is(err, fault.Uncertain) {
			return found, err // repeat
		}
		return found, findErr
	})
}

// snapshot creates a snapshot that can be restored.
func (e *env) snapshot(name string, of cloud.VolumeID) cloud.Snapshot {
	e.Helper()
	snap, err := e.settleSnapshot(cloud.CreateSnapshotRequest{Name: name, Volume: of})
	if err != nil {
		e.Fatalf("CreateSnapshot(%q, %s) = %v, want a snapshot", name, of, err)
	}
	var got cloud.Snapshot
	e.eventually("the snapshot is ready", func() bool {
		if got, err = e.c.GetSnapshot(e.Context(), snap.ID); err != nil {
			e.Fatalf("GetSnapshot(%s) = %v", snap.ID, err)
		}
		return got.Ready
	})
	if snap.Ready = true; !sameSnapshot(got, snap) {
		e.Errorf("CreateSnapshot answered %+v, GetSnapshot shows %+v", snap, got)
	}
	return got
}

// until repeats a call as long as its error means that a repeat may help.
func until[T any](e *env, call func() (T, error)) (answer T, err error) {
	e.Helper()
	e.eventually("a final answer", func() bool {
		answer, err = call()
		switch fault.Of(err) {
		case fault.Busy, fault.Unavailable, fault.Uncertain:
			return false
		default:
			return true
		}
	})
	return answer, err
}

// eventually waits for a condition, up to the Patience of the harness.
func (e *env) eventually(what string, holds func() bool) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), e.h.Patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			e.Fatalf("waited %s in vain for %s", e.h.Patience, what)
		}
	}
}

// want fails the test unless the error has one of the kinds.
func (e *env) want(err error, call string, kinds ...fault.Kind) {
	e.Helper()
	for _, kind := range kinds {
		if fault.Of(err) == kind && (err == nil) == (kind == fault.None) {
			return
		}
	}
	e.Errorf("%s = %v, want the kind %q", call, err, kinds)
}

// reason fails the test unless the error has the reason.
func (e *env) reason(err error, call string, want fault.Reason) {
	e.Helper()
	if got := fault.ReasonOf(err); got != want {
		e.Errorf("%s = %v has the reason %q, want %q", call, err, string(got), string(want))
	}
}

// ok fails the test on an error.
func (e *env) ok(err error, call string) {
	e.Helper()
	if err != nil {
		e.Errorf("%s = %v, want no error", call, err)
	}
}

// ids lists the volumes.
func (e *env) ids() map[cloud.VolumeID]cloud.Volume {
	e.Helper()
	all := map[cloud.VolumeID]cloud.Volume{}
	for token := ""; ; {
		list, err := e.c.ListVolumes(e.Context(), cloud.Page{Token: token})
		if err != nil {
			e.Fatalf("ListVolumes = %v", err)
		}
		for _, vol := range list.Volumes {
			all[vol.ID] = vol
		}
		if token = list.Next; token == "" {
			return all
		}
	}
}

// get returns the state of a volume that must exist.
func (e *env) get(id cloud.VolumeID) cloud.Volume {
	e.Helper()
	vol, err := e.c.GetVolume(e.Context(), id)
	if err != nil {
		e.Fatalf("GetVolume(%s) = %v, want the volume", id, err)
	}
	return vol
}

// gone fails the test unless the volume does not exist.
func (e *env) gone(id cloud.VolumeID) {
	e.Helper()
	_, err := e.c.GetVolume(e.Context(), id)
	e.want(err, "GetVolume of what must be gone", fault.NotFound)
}

// left fails the test unless exactly these volumes exist.
func (e *env) left(want ...cloud.VolumeID) {
	e.Helper()
	have := e.ids()
	for _, id := range want {
		if _, ok := have[id]; !ok {
			e.Errorf("volume %s is missing from the list", id)
		}
		delete(have, id)
	}
	for id, vol := range have {
		e.Errorf("volume %s, named %q, was left behind", id, vol.Name)
	}
}
