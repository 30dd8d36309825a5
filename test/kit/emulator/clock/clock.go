// Package clock is the emulators' time: the wall clock, or one that runs faster, so that an hour's
// budget or a rule about ten minutes can be tested in seconds.
package clock

import (
	"context"
	"time"
)

// Clock tells an emulated time that began when the clock was made. It uses package time below, so
// inside a testing/synctest bubble it is simulated like everything else.
type Clock struct {
	start time.Time
	speed float64
}

// New returns a clock that runs speed times as fast as the wall clock; 0 means 1.
func New(speed float64) *Clock {
	if speed <= 0 {
		speed = 1
	}
	return &Clock{start: time.Now(), speed: speed}
}

// Now returns the emulated time.
func (c *Clock) Now() time.Time {
	return c.start.Add(time.Duration(float64(time.Since(c.start)) * c.speed))
}

// Wall returns when the wall clock will show the emulated time t. A client lives by the wall clock, so
// what a header promises it is a wall time.
func (c *Clock) Wall(t time.Time) time.Time { return c.start.Add(c.WallSpan(t.Sub(c.start))) }

// WallSpan returns how long the emulated d lasts on the wall clock.
func (c *Clock) WallSpan(d time.Duration) time.Duration {
	return time.Duration(float64(d) / c.speed)
}

// AfterFunc calls f when the emulated d has passed.
func (c *Clock) AfterFunc(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(c.WallSpan(d), f)
}

// Wait returns after the emulated d, or with an error when ctx ends first.
func (c *Clock) Wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(c.WallSpan(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
