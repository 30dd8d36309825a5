// Package wait has the waits of both programs: pauses that end with a context, repeats with growing pauses, and a guard
// against calls that the kernel may never return from.
package wait

import (
	"context"
	"time"
)

// Sleep returns nil after d, or the error of ctx if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Backoff is a series of growing pauses.
type Backoff struct {
	// Tries is the maximum number of calls, including the first; 0: no limit.
	Tries int
	// First is the pause after the first call. Each later pause is 1.5 times as long, up to Max; a Max below First counts as First.
	First, Max time.Duration
	// Rand returns a number in [0, 1) by which a pause is shortened, up to a third, so that two programs that have collided do not
	// collide again. Nil: the pauses are exact.
	Rand func() float64
}

// Every returns a Backoff of n calls with n-1 equal pauses; 0: no limit.
func Every(pause time.Duration, n int) Backoff { return Backoff{Tries: n, First: pause} }

// Pause returns the pause after call n, counted from 1.
func (b Backoff) Pause(n int) time.Duration {
	d := b.First
	for ; n > 1 && d < b.Max; n-- {
		d = min(d+d/2, b.Max)
	}
	if b.Rand != nil {
		d -= time.Duration(b.Rand() * float64(d) / 3)
	}
	return d
}

// Retry calls do until it returns nil or an error for which again is false, and returns its last error. It does not begin a pause
// that the deadline of ctx would end, so the caller gets the cause before its deadline.
func (b Backoff) Retry(ctx context.Context, again func(error) bool, do func() error) error {
	for n := 1; ; n++ {
		err := do()
		if err == nil || !again(err) || n == b.Tries {
			return err
		}
		pause := b.Pause(n)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause {
			return err
		}
		if Sleep(ctx, pause) != nil {
			return err
		}
	}
}
