package middleware_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var (
	wantKind         = expect.Kind
	create, snapshot = cloudtest.CreateVolume, cloudtest.CreateSnapshot
)

// small returns a request for a blank volume.
func small(name string) cloud.CreateVolumeRequest {
	return cloud.CreateVolumeRequest{Name: name, Size: cloud.GiB}
}

// snapshotOf returns a request for a snapshot.
func snapshotOf(name string, id cloud.VolumeID) cloud.CreateSnapshotRequest {
	return cloud.CreateSnapshotRequest{Name: name, Volume: id}
}

// count returns how many volumes there are.
func count(t *testing.T, c cloud.Cloud) int {
	t.Helper()
	list, err := c.ListVolumes(t.Context(), cloud.Page{})
	expect.NoError(t, err)
	return len(list.Volumes)
}

// repeatable has for every call whether Retry repeats it.
var repeatable = map[memory.Call]bool{
	memory.CallCapacity: true, memory.CallCheck: true,
	memory.CallCreateVolume: false, memory.CallFindVolume: true, memory.CallGetVolume: true,
	memory.CallDeleteVolume: true, memory.CallListVolumes: true, memory.CallExpandVolume: true,
	memory.CallAttach: false, memory.CallDetach: true,
	memory.CallCreateSnapshot: false, memory.CallFindSnapshot: true, memory.CallGetSnapshot: true,
	memory.CallDeleteSnapshot: true, memory.CallListSnapshots: true,
}

// pauses is the total of the three pauses between four calls, before jitter takes up to a third of each.
const pauses = (300 + 450 + 675) * time.Millisecond

func TestRetryRepeatsOnlyWhatIsHarmless(t *testing.T) {
	for call, repeats := range repeatable {
		t.Run(string(call), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				back := memory.New(memory.Config{})
				c := middleware.NewRetry(back, wait.Backoff{})
				vol := create(t, c, small("old"))
				snap := snapshot(t, c, snapshotOf("old", vol.ID))
				refuse := memory.Refuse(fault.Unavailable)
				back.Account().Arm(call, refuse, refuse, refuse)
				objects := cloudtest.Objects{Volume: vol.ID, Snapshot: snap.ID, Node: "node-1"}
				began := time.Now()
				err := cloudtest.Calls(c, small("old"), objects)[string(call)](t.Context())
				took := time.Since(began)
				switch {
				case repeats:
					wantKind(t, "the call", err, fault.None)
					if took < pauses*2/3 || took > pauses {
						t.Errorf("three pauses took %s, want two thirds to the whole of %s", took, pauses)
					}
				default:
					wantKind(t, "the call", err, fault.Unavailable)
					if left := back.Account().Armed(call); left != 2 || took != 0 {
						t.Errorf("it was made %d times in %s, want once", 3-left, took)
					}
				}
			})
		})
	}
}

func TestRetryEnds(t *testing.T) {
	tests := map[string]struct {
		kind    fault.Kind
		timeout time.Duration
		calls   int
		most    time.Duration
	}{
		"after four attempts":                         {fault.Unavailable, time.Hour, 4, pauses},
		"at once when the deadline is before the end": {fault.Unavailable, 90 * time.Millisecond, 1, 0},
		"at once for an open outcome":                 {fault.Uncertain, time.Hour, 1, 0},
		"at once for a held lock":                     {fault.Busy, time.Hour, 1, 0},
		"at once for what is not there":               {fault.NotFound, time.Hour, 1, 0},
		"at once for what is denied":                  {fault.Denied, time.Hour, 1, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				back := memory.New(memory.Config{})
				c := middleware.NewRetry(back, wait.Backoff{})
				const armed = 9
				for range armed {
					back.Account().Arm(memory.CallDeleteVolume, memory.Refuse(tc.kind))
				}
				ctx, cancel := context.WithTimeout(t.Context(), tc.timeout)
				defer cancel()
				began := time.Now()
				err := c.DeleteVolume(ctx, "vol")
				wantKind(t, "DeleteVolume", err, tc.kind)
				if took := time.Since(began); took > tc.most {
					t.Errorf("it took %s, want at most %s", took, tc.most)
				}
				if calls := armed - back.Account().Armed(memory.CallDeleteVolume); calls != tc.calls {
					t.Errorf("%d calls, want %d", calls, tc.calls)
				}
			})
		})
	}
}

func TestRetryKeepsTheCauseWhenTheCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := memory.New(memory.Config{})
		c := middleware.NewRetry(back, wait.Backoff{})
		back.Account().Arm(memory.CallCheck, memory.Refuse(fault.Unavailable), memory.Refuse(fault.Denied))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		began := time.Now()
		wantKind(t, "Check", c.Check(ctx), fault.Unavailable)
		if took := time.Since(began); took != time.Millisecond {
			t.Errorf("it took %s, want to end with the context", took)
		}
	})
}

func TestTheStackHasItsOrder(t *testing.T) {
	c := middleware.Stack(memory.New(memory.Config{}), wait.Backoff{})
	idempotent, ok := c.(*middleware.Idempotent)
	if !ok {
		t.Fatalf("outermost is %T", c)
	}
	if _, ok := idempotent.Cloud.(*middleware.Retry); !ok {
		t.Fatalf("second is %T", idempotent.Cloud)
	}
}
