package clock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
)

func TestSpanText(t *testing.T) {
	for _, row := range []struct {
		text string
		want clock.Span
		bad  bool
	}{
		{"2s", clock.Fixed(2 * time.Second), false},
		{"2s+500ms", clock.Span{Least: 2 * time.Second, Spread: 500 * time.Millisecond}, false},
		{"0s", clock.Span{}, false},
		{"", clock.Span{}, true},
		{"2", clock.Span{}, true},
		{"2s+", clock.Span{}, true},
		{"-2s", clock.Span{}, true},
		{"2s+-1s", clock.Span{}, true},
		{"2562047h+2562047h", clock.Span{}, true},
	} {
		var got clock.Span
		err := got.UnmarshalText([]byte(row.text))
		if got != row.want || (err != nil) != row.bad {
			t.Errorf("UnmarshalText(%q) = %v, %v, want %v (refused: %t)", row.text, got, err, row.want, row.bad)
		}
	}
}

func FuzzSpanText(f *testing.F) {
	f.Add("2s+500ms")
	f.Fuzz(func(t *testing.T, text string) {
		var read, again clock.Span
		if read.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(read.String())); err != nil || again != read {
			t.Errorf("%q reads as %v, and that as %v (%v)", text, read, again, err)
		}
		if at := read.Pick(0.5); at < read.Least {
			t.Errorf("Pick() of %v = %s, want at least %s", read, at, read.Least)
		}
	})
}

func TestRollIsEvenAndRepeatable(t *testing.T) {
	tenths := make([]int, 10)
	for i := range 1000 {
		roll := clock.Roll(1, "fault", 1, i)
		if roll < 0 || roll >= 1 || roll != clock.Roll(1, "fault", 1, i) {
			t.Fatalf("Roll() = %v, want the same number from 0 up to 1 each time", roll)
		}
		tenths[int(roll*10)]++
	}
	for tenth, n := range tenths {
		if n < 60 || n > 140 {
			t.Errorf("%d of 1000 numbers are in tenth %d: %v", n, tenth, tenths)
		}
	}
}

func TestAFasterClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, begin := clock.New(60), time.Now()
		emulated := c.Now()
		if err := c.Wait(t.Context(), time.Minute); err != nil || time.Since(begin) != time.Second {
			t.Errorf("a minute took %s (%v), want a second", time.Since(begin), err)
		}
		if passed := c.Now().Sub(emulated); passed != time.Minute {
			t.Errorf("%s passed, want a minute", passed)
		}
		if wall := c.Wall(emulated.Add(time.Hour)); wall != begin.Add(time.Minute) {
			t.Errorf("an emulated hour ends at %s, want a minute after %s", wall, begin)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Wait(ctx, time.Hour); err == nil {
			t.Error("Wait() = nil with an ended context")
		}
	})
}
