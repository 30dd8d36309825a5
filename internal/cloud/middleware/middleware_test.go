package middleware_test

import (
	"context"
	"fmt"
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

var wantKind = expect.Kind

// small returns a request for a blank volume.
func small(name string) cloud.CreateVolumeRequest {
	return cloud.CreateVolumeRequest{Name: name, Size: cloud.GiB}
}

func create(t *testing.T, c cloud.Cloud, req cloud.CreateVolumeRequest) cloud.Volume {
	t.Helper()
	vol, err := c.CreateVolume(t.Context(), req)
	if err != nil {
		t.Fatalf("CreateVolume(%q) = %v", req.Name, err)
	}
	return vol
}

// snapshotOf returns a request for a snapshot.
func snapshotOf(name string, id cloud.VolumeID) cloud.CreateSnapshotRequest {
	return cloud.CreateSnapshotRequest{Name: name, Volume: id}
}

func snapshot(t *testing.T, c cloud.Cloud, req cloud.CreateSnapshotRequest) cloud.Snapshot {
	t.Helper()
	snap, err := c.CreateSnapshot(t.Context(), req)
	if err != nil {
		t.Fatalf("CreateSnapshot(%q) = %v", req.Name, err)
	}
	return snap
}

// count returns how many volumes there are.
func count(t *testing.T, c cloud.Cloud) int {
	t.Helper()
	list, err := c.ListVolumes(t.Context(), cloud.Page{})
	if err != nil {
		t.Fatal(err)
	}
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

// doCall makes one call that succeeds when nothing is armed.
func doCall(ctx context.Context, c cloud.Cloud, call memory.Call, vol cloud.Volume, snap cloud.Snapshot) (err error) {
	switch call {
	case memory.CallCapacity:
		_, err = c.Capacity(ctx, "", nil)
	case memory.CallCheck:
		err = c.Check(ctx)
	case memory.CallCreateVolume:
		_, err = c.CreateVolume(ctx, small("new"))
	case memory.CallFindVolume:
		_, err = c.FindVolume(ctx, vol.Name)
	case memory.CallGetVolume:
		_, err = c.GetVolume(ctx, vol.ID)
	case memory.CallDeleteVolume:
		err = c.DeleteVolume(ctx, vol.ID)
	case memory.CallListVolumes:
		_, err = c.ListVolumes(ctx, cloud.Page{})
	case memory.CallExpandVolume:
		_, err = c.ExpandVolume(ctx, vol.ID, 2*cloud.GiB)
	case memory.CallAttach:
		_, err = c.Attach(ctx, vol.ID, "node-1")
	case memory.CallDetach:
		err = c.Detach(ctx, vol.ID, "node-1")
	case memory.CallCreateSnapshot:
		_, err = c.CreateSnapshot(ctx, snapshotOf("new", vol.ID))
	case memory.CallFindSnapshot:
		_, err = c.FindSnapshot(ctx, snap.Name)
	case memory.CallGetSnapshot:
		_, err = c.GetSnapshot(ctx, snap.ID)
	case memory.CallDeleteSnapshot:
		err = c.DeleteSnapshot(ctx, snap.ID)
	case memory.CallListSnapshots:
		_, err = c.ListSnapshots(ctx, "", cloud.Page{})
	default:
		err = fmt.Errorf("no such call: %s", call)
	}
	return err
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
				began := time.Now()
				err := doCall(t.Context(), c, call, vol, snap)
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
