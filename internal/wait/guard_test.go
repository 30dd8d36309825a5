package wait

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const bound = 10 * time.Second

func TestADeviceThatHangsCostsOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Guard
		released := make(chan struct{})
		var started atomic.Int32
		file, err := os.Create(filepath.Join(t.TempDir(), "x"))
		if err != nil {
			t.Fatal(err)
		}
		hang := func(context.Context) (*os.File, error) {
			started.Add(1)
			<-released
			return file, nil
		}
		quick := func(context.Context) (*os.File, error) { return nil, nil }
		begin := time.Now()
		for range 5 {
			if _, err := g.Open(t.Context(), "sda", bound, hang); !errors.Is(err, ErrNoAnswer) {
				t.Errorf("run of a step that hangs = %v, want %v", err, ErrNoAnswer)
			}
		}
		if got := started.Load(); got != 1 {
			t.Errorf("%d steps were started on the device, want 1", got)
		}
		if got := time.Since(begin); got != bound {
			t.Errorf("five calls took %v, want the bound %v of the first", got, bound)
		}
		if _, err := g.Open(t.Context(), "sdb", bound, quick); err != nil {
			t.Errorf("run on another device = %v", err)
		}
		close(released)
		synctest.Wait()
		if err := file.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("the file of a step without a caller stays open: %v", err)
		}
		if _, err := g.Open(t.Context(), "sda", bound, quick); err != nil {
			t.Errorf("run after the device has answered = %v", err)
		}
		synctest.Wait()
		if len(g.keys) != 0 {
			t.Errorf("%d devices that nothing runs on are kept", len(g.keys))
		}
	})
}

func TestACallEndsWithItsContextWhileADeviceHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Guard
		released := make(chan struct{})
		defer close(released)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := g.Open(ctx, "sda", bound, func(context.Context) (*os.File, error) { <-released; return nil, nil })
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("run = %v after %v, want it to end with its context", err, time.Since(begin))
		}
	})
}
