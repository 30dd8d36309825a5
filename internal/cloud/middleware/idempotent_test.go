package middleware_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// C1: one name is at most one volume, whichever call fails on the way.
func TestALostAnswerMakesOneVolume(t *testing.T) {
	tests := map[string]struct {
		faults map[memory.Call]memory.Fault
		first  fault.Kind
		there  int // volumes after the first call
	}{
		"the answer is lost, and the volume is found": {
			map[memory.Call]memory.Fault{memory.CallCreateVolume: memory.LoseAnswer()}, fault.None, 1},
		"the request is lost: not found proves nothing": {
			map[memory.Call]memory.Fault{memory.CallCreateVolume: memory.LoseRequest()}, fault.Uncertain, 0},
		"the answer is lost, and so is the look": {
			map[memory.Call]memory.Fault{memory.CallCreateVolume: memory.LoseAnswer(), memory.CallFindVolume: memory.LoseAnswer()}, fault.Uncertain, 1},
		"the answer is lost, and the look is denied": {
			map[memory.Call]memory.Fault{memory.CallCreateVolume: memory.LoseAnswer(), memory.CallFindVolume: memory.Refuse(fault.Denied)}, fault.Uncertain, 1},
		"the cloud refuses, and nothing has the name": {
			map[memory.Call]memory.Fault{memory.CallCreateVolume: memory.Refuse(fault.Exhausted)}, fault.Exhausted, 0},
		"the cloud refuses, and the look fails": {
			map[memory.Call]memory.Fault{memory.CallCreateVolume: memory.Refuse(fault.Denied), memory.CallFindVolume: memory.Refuse(fault.Denied)}, fault.Uncertain, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			back := memory.New(memory.Config{})
			c := middleware.NewIdempotent(back)
			for call, f := range tc.faults {
				back.Account().Arm(call, f)
			}
			_, err := c.CreateVolume(t.Context(), small("a"))
			wantKind(t, "the first CreateVolume", err, tc.first)
			if n := count(t, back); n != tc.there {
				t.Errorf("%d volumes, want %d", n, tc.there)
			}
			vol := create(t, c, small("a"))
			if again := create(t, c, small("a")); !reflect.DeepEqual(vol, again) {
				t.Errorf("the answers differ: %+v, then %+v", vol, again)
			}
			if n := count(t, back); n != 1 {
				t.Errorf("%d volumes, want 1", n)
			}
		})
	}
}

// If the cloud refuses the token, the outcome of a create is uncertain, because an earlier call may have created the volume. The
// error has its reason nevertheless, because only an operator can solve the problem.
func TestACreateThatIsDeniedHasTheReason(t *testing.T) {
	back := memory.New(memory.Config{})
	c := middleware.NewIdempotent(back)
	vol := create(t, c, small("source"))
	for _, call := range []memory.Call{memory.CallCreateVolume, memory.CallFindVolume, memory.CallCreateSnapshot, memory.CallFindSnapshot} {
		back.Account().Arm(call, memory.Refuse(fault.Denied))
	}
	_, created := c.CreateVolume(t.Context(), small("a"))
	_, taken := c.CreateSnapshot(t.Context(), snapshotOf("s", vol.ID))
	for what, err := range map[string]error{"CreateVolume": created, "CreateSnapshot": taken} {
		wantKind(t, what, err, fault.Uncertain)
		expect.Reason(t, what, err, fault.AccessDenied)
	}
}

// answer is a refusal that came from the cloud.
type answer struct{ fault.Kind }

func (answer) FromCloud() {}

func (a answer) Unwrap() error { return a.Kind }

// C1: a cloud that checks its quota before the name refuses the repeat of a create that used up the quota. A final
// answer would make the provisioner forget that volume.
func TestARefusedRepeatFindsWhatTheFirstCallMade(t *testing.T) {
	for _, refusal := range []error{
		fault.Exhausted, fault.Denied, fault.NotFound, fault.Precondition, fault.OutOfRange,
		answer{fault.InvalidArgument}, answer{fault.Unsupported},
	} {
		t.Run(refusal.Error(), func(t *testing.T) {
			back := memory.New(memory.Config{})
			c := middleware.NewIdempotent(back)
			source := create(t, back, small("source"))
			first := create(t, back, small("a")) // its answer never reached the caller
			back.Account().Arm(memory.CallCreateVolume, memory.Refuse(refusal))
			if again := create(t, c, small("a")); !reflect.DeepEqual(first, again) {
				t.Errorf("CreateVolume = %+v, want the first one, %+v", again, first)
			}

			req := cloud.CreateSnapshotRequest{Name: "s", Volume: source.ID}
			made := snapshot(t, back, req)
			back.Account().Arm(memory.CallCreateSnapshot, memory.Refuse(refusal))
			if again, err := c.CreateSnapshot(t.Context(), req); err != nil || !reflect.DeepEqual(made, again) {
				t.Errorf("CreateSnapshot = %+v, %v, want the first one, %+v", again, err, made)
			}
		})
	}
}

// A request that the cloud calls wrong is final once no object with its name was found. The driver's own checks are final without a
// read.
func TestAWrongRequestIsLookedForOnlyIfTheCloudSaysSo(t *testing.T) {
	for name, tc := range map[string]struct {
		refusal error
		looks   int
	}{
		"the cloud's word": {fmt.Errorf("in zone-a: %w", answer{fault.InvalidArgument}), 1},
		"our own":          {fault.InvalidArgument, 0},
	} {
		t.Run(name, func(t *testing.T) {
			back := memory.New(memory.Config{})
			c := middleware.NewIdempotent(back)
			vol := create(t, c, small("source"))
			for _, call := range []memory.Call{memory.CallCreateVolume, memory.CallCreateSnapshot} {
				back.Account().Arm(call, memory.Refuse(tc.refusal))
			}
			for _, call := range []memory.Call{memory.CallFindVolume, memory.CallFindSnapshot} {
				back.Account().Arm(call, memory.Refuse(fault.NotFound)) // stays armed if no read is made
			}
			_, err := c.CreateVolume(t.Context(), small("a"))
			wantKind(t, "CreateVolume", err, fault.InvalidArgument)
			if looks := 1 - back.Account().Armed(memory.CallFindVolume); looks != tc.looks {
				t.Errorf("CreateVolume has looked %d times, want %d", looks, tc.looks)
			}
			_, err = c.CreateSnapshot(t.Context(), snapshotOf("s", vol.ID))
			wantKind(t, "CreateSnapshot", err, fault.InvalidArgument)
			if looks := 1 - back.Account().Armed(memory.CallFindSnapshot); looks != tc.looks {
				t.Errorf("CreateSnapshot has looked %d times, want %d", looks, tc.looks)
			}
		})
	}
}

// C1: the volume of a create that the caller gave up is what the next create returns.
func TestAnAbandonedCreateIsFoundByTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := memory.New(memory.Config{OperationTime: time.Minute, ReadLag: time.Second})
		c := middleware.Stack(back, wait.Backoff{})
		began := time.Now()
		for _, after := range []time.Duration{time.Second, 30 * time.Second, time.Minute - 1} {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			_, err := c.CreateVolume(ctx, small("a"))
			cancel()
			if err == nil {
				break // an earlier create has completed
			}
			wantKind(t, "the abandoned CreateVolume", err, fault.Uncertain)
		}
		create(t, c, small("a"))
		if took := time.Since(began); took < time.Minute {
			t.Errorf("the volume was answered after %s, it is ready after a minute", took)
		}
		if n := count(t, back); n != 1 {
			t.Errorf("%d volumes, want 1", n)
		}
	})
}

// C2, C3, C5: a restore to a larger size continues where it was interrupted, and returns what it would have returned at
// first.
func TestARestoreToALargerSizeCanBeRepeatedFromAnyPoint(t *testing.T) {
	uncertain := fault.Uncertain
	tests := map[string]struct {
		create []memory.Fault
		expand []memory.Fault
		first  fault.Kind
	}{
		"nothing goes wrong":                          {nil, nil, fault.None},
		"the answer is lost":                          {[]memory.Fault{memory.LoseAnswer()}, nil, fault.None},
		"the growth is interrupted":                   {[]memory.Fault{memory.HalfRestore()}, nil, fault.None},
		"the growth fails again":                      {[]memory.Fault{memory.HalfRestore()}, []memory.Fault{memory.Refuse(fault.Unavailable)}, uncertain},
		"the growth finds no room":                    {[]memory.Fault{memory.HalfRestore()}, []memory.Fault{memory.Refuse(fault.Exhausted)}, uncertain},
		"the growth is too large":                     {[]memory.Fault{memory.HalfRestore()}, []memory.Fault{memory.Refuse(fault.OutOfRange)}, uncertain},
		"the growth loses its answer":                 {[]memory.Fault{memory.HalfRestore()}, []memory.Fault{memory.LoseAnswer()}, uncertain},
		"the growth is interrupted and its cause too": {[]memory.Fault{memory.HalfRestore()}, []memory.Fault{memory.LoseRequest()}, uncertain},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			back := memory.New(memory.Config{})
			c := middleware.NewIdempotent(back)
			from := create(t, c, small("source"))
			snap := snapshot(t, c, snapshotOf("snap", from.ID))
			req := small("restored")
			req.Size, req.Limit, req.Source.Snapshot = 3*cloud.GiB, 3*cloud.GiB, snap.ID
			back.Account().Arm(memory.CallCreateVolume, tc.create...)
			back.Account().Arm(memory.CallExpandVolume, tc.expand...)
			_, err := c.CreateVolume(t.Context(), req)
			wantKind(t, "the first CreateVolume", err, tc.first)

			vol := create(t, c, req)
			if vol.Size != req.Size || vol.Source != req.Source || vol.Zone == "" {
				t.Errorf("the volume is %+v, want %s from %s", vol, req.Size, snap.ID)
			}
			if got, err := back.GetVolume(t.Context(), vol.ID); err != nil || !reflect.DeepEqual(got, vol) {
				t.Errorf("the cloud has %+v, %v, the answer was %+v", got, err, vol)
			}
			if n := count(t, back); n != 2 {
				t.Errorf("%d volumes, want the source and the copy", n)
			}
		})
	}
}

func TestAConflictSaysWhatDiffers(t *testing.T) {
	back := memory.New(memory.Config{})
	c := middleware.NewIdempotent(back)
	vol := create(t, c, cloud.CreateVolumeRequest{Name: "a", Size: 2 * cloud.GiB, Zones: []string{"zone-a"}})
	tests := map[string]struct {
		req  cloud.CreateVolumeRequest
		want string
	}{
		"size":       {cloud.CreateVolumeRequest{Size: 3 * cloud.GiB}, "its size is 2 GiB, asked for are 3 GiB or more"},
		"limit":      {cloud.CreateVolumeRequest{Size: cloud.GiB, Limit: cloud.GiB}, "its size is 2 GiB, asked for are 1 GiB to 1 GiB"},
		"zone":       {cloud.CreateVolumeRequest{Size: cloud.GiB, Zones: []string{"zone-b", "zone-c"}}, "it is in zone-a, asked for is zone-b or zone-c"},
		"source":     {cloud.CreateVolumeRequest{Size: 2 * cloud.GiB, Source: cloud.Source{Volume: vol.ID}}, "it is blank, asked for is one that is a copy of volume " + string(vol.ID)},
		"snapshot":   {cloud.CreateVolumeRequest{Size: 2 * cloud.GiB, Source: cloud.Source{Snapshot: "s"}}, "asked for is one that is restored from snapshot s"},
		"parameters": {cloud.CreateVolumeRequest{Size: cloud.GiB, Parameters: []cloud.Parameter{{Name: "type", Value: "fast"}}}, "its parameters differ"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.req.Name = "a"
			_, err := c.CreateVolume(t.Context(), tc.req)
			wantKind(t, "CreateVolume", err, fault.Conflict)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), string(vol.ID)) {
				t.Errorf("CreateVolume = %v, want it to say %q and name %s", err, tc.want, vol.ID)
			}
		})
	}
}

// C8: a snapshot whose caller is gone is found again and can be deleted.
func TestALostAnswerMakesOneSnapshot(t *testing.T) {
	for name, lost := range map[string]memory.Fault{
		"the answer is lost":  memory.LoseAnswer(),
		"the request is lost": memory.LoseRequest(),
	} {
		t.Run(name, func(t *testing.T) {
			back := memory.New(memory.Config{})
			c := middleware.NewIdempotent(back)
			vol, other := create(t, c, small("a")), create(t, c, small("b"))
			req := snapshotOf("snap", vol.ID)
			back.Account().Arm(memory.CallCreateSnapshot, lost)
			if _, err := c.CreateSnapshot(t.Context(), req); err != nil {
				wantKind(t, "the first CreateSnapshot", err, fault.Uncertain)
			}
			snap := snapshot(t, c, req)
			if again := snapshot(t, c, req); again != snap {
				t.Errorf("the third CreateSnapshot = %+v, want %+v", again, snap)
			}
			_, err := c.CreateSnapshot(t.Context(), snapshotOf("snap", other.ID))
			wantKind(t, "CreateSnapshot of another volume", err, fault.Conflict)
			wantKind(t, "DeleteSnapshot", c.DeleteSnapshot(t.Context(), snap.ID), fault.None)
			list, err := c.ListSnapshots(t.Context(), "", cloud.Page{})
			if err != nil || len(list.Snapshots) != 0 {
				t.Errorf("ListSnapshots = %+v, %v, want none", list, err)
			}
		})
	}
}

// C12: two clusters of one account can request the same name and never get each other's volume.
func TestAnotherClustersVolumeIsNeverAdopted(t *testing.T) {
	account := memory.NewAccount(memory.Config{})
	one := middleware.NewIdempotent(account.Cluster("one"))
	two := middleware.NewIdempotent(account.Cluster("two"))
	vol := create(t, one, small("shared"))
	_, err := two.CreateVolume(t.Context(), small("shared"))
	wantKind(t, "CreateVolume in the other cluster", err, fault.Conflict)

	// An uncertain outcome stays uncertain: only a repeat proves that nothing was created.
	account.Arm(memory.CallCreateVolume, memory.LoseRequest())
	_, err = two.CreateVolume(t.Context(), small("shared"))
	wantKind(t, "CreateVolume with a lost request", err, fault.Uncertain)
	if found, err := one.FindVolume(t.Context(), "shared"); err != nil || found.ID != vol.ID {
		t.Errorf("FindVolume = %+v, %v, want %s", found, err, vol.ID)
	}
}

// joined returns the results of an earlier call with the name, as ops does if a change with the same name goes on.
type joined struct {
	cloud.Cloud
	volume   cloud.Volume
	snapshot cloud.Snapshot
}

func (j joined) CreateVolume(context.Context, cloud.CreateVolumeRequest) (cloud.Volume, error) {
	return j.volume, nil
}

func (j joined) CreateSnapshot(context.Context, cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	return j.snapshot, nil
}

// C1: the result of an earlier call with another request is none of this one, whatever the backend counts as the same change.
func TestTheResultOfAnotherRequestIsRefused(t *testing.T) {
	back := memory.New(memory.Config{})
	j := joined{Cloud: back, volume: create(t, back, small("a"))}
	j.snapshot = snapshot(t, back, snapshotOf("s", j.volume.ID))
	c := middleware.NewIdempotent(j)
	_, same := c.CreateVolume(t.Context(), small("a"))
	_, sameSnapshot := c.CreateSnapshot(t.Context(), snapshotOf("s", j.volume.ID))
	larger, from, with := small("a"), small("a"), small("a")
	larger.Size *= 2
	from.Source = cloud.Source{Snapshot: j.snapshot.ID}
	with.Parameters = []cloud.Parameter{{Name: "encrypted", Value: "true"}}
	_, other := c.CreateSnapshot(t.Context(), snapshotOf("s", "another"))
	for what, err := range map[string]error{"the same request": same, "the same snapshot": sameSnapshot} {
		wantKind(t, what, err, fault.None)
	}
	wantKind(t, "a snapshot of another volume", other, fault.Conflict)
	for what, req := range map[string]cloud.CreateVolumeRequest{"a larger one": larger, "a copy": from, "another parameter": with} {
		_, err := c.CreateVolume(t.Context(), req)
		wantKind(t, what, err, fault.Conflict)
	}
}
