package yandex_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// A clone that takes longer than usual keeps its temporary snapshot until it is done, whichever controller sweeps, and
// then it goes.
func TestASweepKeepsATemporarySnapshotThatIsInUse(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Durations: emulator.Durations{Restore: clock.Fixed(time.Hour), Snapshot: clock.Fixed(5 * time.Minute)}})
		eager := func(cfg *yandex.Config) {
			cfg.OperationTimeout, cfg.OrphanAge, cfg.SweepEvery = 10*time.Minute, 20*time.Minute, 10*time.Minute
		}
		c, other := open(t, folder, eager), open(t, folder, eager)
		req := request("copy")
		req.Source.Volume = origin(t, stack(c))
		began := time.Now()
		for {
			vol, err := stack(c).CreateVolume(t.Context(), req)
			if err == nil {
				if d, _ := folder.Disk(string(vol.ID)); d.Status != "READY" {
					t.Errorf("the copy is %+v", d)
				}
				break
			}
			if kind := fault.Of(err); kind != fault.Uncertain && kind != fault.Unavailable || time.Since(began) > 2*time.Hour {
				t.Fatalf("after %s: %v", time.Since(began), err)
			}
			must(t, other.Sweep(t.Context()))
			if n := len(folder.Snapshots()); n != 1 && len(folder.Running()) > 0 {
				t.Fatalf("after %s there are %d snapshots while the clone is under way", time.Since(began), n)
			}
		}
		if took := time.Since(began); took > 70*time.Minute {
			t.Errorf("the clone took %s, want 65 m", took)
		}
		if all := folder.Snapshots(); len(all) > 0 {
			t.Errorf("left are %+v", all)
		}
		left(t, folder, 2)
	})
}

// Where names repeat, a clone does not make a second temporary snapshot beside one that is going: its removal may fail.
func TestACloneWaitsForTheEndOfAnEarlierTemporarySnapshot(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{
			Durations: emulator.Durations{Snapshot: clock.Fixed(time.Second), Delete: clock.Fixed(time.Minute), DeleteSnapshot: clock.Fixed(time.Minute)},
			Rules:     emulator.Rules{NamesRepeat: true},
		})
		c := open(t, folder)
		req := request("copy")
		req.Source.Volume = origin(t, stack(c))
		folder.Arm(emulator.Fault{Route: createDisk, Effect: faults.Effect{Status: int(codes.Unavailable)}})
		_, err := stack(c).CreateVolume(t.Context(), req)
		want(t, err, fault.Uncertain)
		folder.Disarm()
		time.Sleep(2 * time.Minute)
		folder.Arm(emulator.Fault{Route: "SnapshotService/Delete", Times: 1, Effect: faults.Effect{Errored: true, ID: "INTERNAL"}})
		swept := make(chan error, 1)
		old := open(t, folder, func(cfg *yandex.Config) { cfg.OrphanAge = time.Minute })
		go func() { swept <- old.Sweep(t.Context()) }()
		time.Sleep(30 * time.Second)
		_, err = stack(c).CreateVolume(t.Context(), req)
		want(t, err, fault.Unavailable, "is being removed")
		if all := folder.Snapshots(); len(all) != 1 {
			t.Errorf("there are %+v, want the one that is going", all)
		}
		want(t, <-swept, fault.Unavailable) // the snapshot is back
		create(t, stack(c), req)
		time.Sleep(2 * time.Minute)
		if all := folder.Snapshots(); len(all) > 0 {
			t.Errorf("left are %+v", all)
		}
		left(t, folder, 2)
	})
}

// A temporary snapshot that the cloud gave up when nobody waited for it any more, under a key that is forgotten, is not
// in the way of the next one.
func TestACloneGoesOnBehindATemporarySnapshotInError(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{
			Durations: emulator.Each(clock.Fixed(time.Second)), Rules: emulator.Rules{KeysForgottenAfter: clock.Fixed(time.Minute)},
		})
		c := open(t, folder)
		req := request("copy")
		req.Source.Volume = origin(t, c)
		folder.Arm(emulator.Fault{Route: "SnapshotService/Create", Times: 1, Effect: faults.Effect{Errored: true, Takes: clock.Fixed(2 * time.Minute)}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := stack(c).CreateVolume(ctx, req)
		want(t, err, fault.Uncertain)
		time.Sleep(5 * time.Minute)
		if all := folder.Snapshots(); len(all) != 1 || all[0].Status != "ERROR" {
			t.Fatalf("left is %+v, want one snapshot in ERROR", all)
		}
		fresh := stack(open(t, folder))
		for attempt := 0; ; attempt++ {
			if _, err = fresh.CreateVolume(t.Context(), req); err == nil {
				break
			}
			if attempt == 3 {
				t.Fatalf("the repeats do not converge: %v", err)
			}
		}
		if all := folder.Snapshots(); len(all) > 0 {
			t.Errorf("left are %+v", all)
		}
		left(t, folder, 2)
	})
}
