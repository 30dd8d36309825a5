package mounter

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestAStepGoesOnWhenItsCallerHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all jobs
		own, err := all.begin(1, "mkfs")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		finish, late := make(chan struct{}), make(chan error, 1)
		cause := errors.New("disk on fire")
		err = own.do(ctx, func(ctx context.Context) error {
			<-finish
			return errors.Join(cause, ctx.Err())
		}, func(err error) { late <- err })
		own.end()
		if !errors.Is(err, fault.Busy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("do = %v, want %v", err, fault.Busy)
		}
		if _, err := all.begin(1, "mkfs"); !errors.Is(err, fault.Busy) {
			t.Errorf("begin while the step runs = %v, want %v", err, fault.Busy)
		}
		if name, busy := all.busy(1); !busy || name != "mkfs" {
			t.Errorf("busy = %q, %v, want mkfs", name, busy)
		}
		close(finish)
		if err := all.wait(t.Context()); err != nil {
			t.Errorf("wait = %v", err)
		}
		if err := <-late; !errors.Is(err, cause) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("late was told %v, want %v and a context that had not ended", err, cause)
		}
		again, err := all.begin(1, "mkfs")
		if err != nil {
			t.Fatalf("begin after the step = %v, want it free", err)
		}
		again.end()
	})
}

// TestAStuckDeviceBlocksNoOther is P2 at this level: a command that hangs keeps nobody else.
func TestAStuckDeviceBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all jobs
		stuck, finish := make(chan error, 1), make(chan struct{})
		own, err := all.begin(1, "mkfs of volume a")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer own.end()
			stuck <- own.do(t.Context(), func(context.Context) error { <-finish; return nil }, func(error) {})
		}()
		synctest.Wait()
		other, err := all.begin(2, "mkfs of volume b")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // one job may have several steps
			if err := other.do(t.Context(), func(context.Context) error { return nil }, func(error) {}); err != nil {
				t.Errorf("do beside a stuck step = %v", err)
			}
		}
		other.end()
		if _, err := all.begin(1, "x"); !errors.Is(err, fault.Busy) {
			t.Errorf("begin on the stuck device = %v, want %v", err, fault.Busy)
		}
		close(finish)
		if err := <-stuck; err != nil {
			t.Errorf("do = %v", err)
		}
	})
}
