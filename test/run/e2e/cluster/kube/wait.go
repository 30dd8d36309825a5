package kube

import (
	"context"
	"fmt"
	"time"
)

// Look is one look at something that is waited for. What it returns in words is shown to the reader
// while nothing happens; an error is a look that did not work and is tried again.
type Look func(ctx context.Context) (done bool, state string, err error)

const (
	pause = 500 * time.Millisecond
	quiet = 10 * time.Second
)

// Until looks until it is done, and says what it waits for when that takes long. The error of a wait
// that ends says what was seen last.
func (c Client) Until(ctx context.Context, what string, atMost time.Duration, look Look) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	begin, said := time.Now(), time.Now()
	last := "never looked at"
	for {
		done, state, err := look(ctx)
		switch {
		case err == nil && done:
			return nil
		case ctx.Err() != nil: // the look was cut off: what was seen before says more
		case err != nil:
			last = err.Error()
		default:
			last = state
		}
		if time.Since(said) >= quiet {
			said = time.Now()
			c.Log("waiting %.0f s: %s; now: %s", time.Since(begin).Seconds(), what, last)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v; last seen: %s", what, atMost, last)
		case <-tick.C:
		}
	}
}

// UntilReady waits until a pod is ready and returns it.
func (c Client) UntilReady(ctx context.Context, pod string, atMost time.Duration) (Pod, error) {
	var p Pod
	err := c.Until(ctx, "pod "+pod+" is ready", atMost, func(ctx context.Context) (bool, string, error) {
		var err error
		p, err = Get[Pod](ctx, c, "pod", pod)
		return err == nil && p.Ready(), p.State(), err
	})
	return p, err
}

// UntilGone waits until an object is no more.
func (c Client) UntilGone(ctx context.Context, kind, name string, atMost time.Duration) error {
	return c.Until(ctx, kind+" "+name+" is gone", atMost, func(ctx context.Context) (bool, string, error) {
		there, err := c.Exists(ctx, kind, name)
		return !there, "still there", err
	})
}

// UntilSize waits until a claim has at least a size.
func (c Client) UntilSize(ctx context.Context, claim string, size int64, atMost time.Duration) error {
	what := fmt.Sprintf("claim %s has %d bytes", claim, size)
	return c.Until(ctx, what, atMost, func(ctx context.Context) (bool, string, error) {
		found, err := Get[Claim](ctx, c, "pvc", claim)
		return found.Bytes() >= size, found.State(), err
	})
}

// UntilEvent waits for an event about an object that says what is wanted, and returns it.
func (c Client) UntilEvent(ctx context.Context, about string, atMost time.Duration, wanted func(Event) bool) (Event, error) {
	var found Event
	err := c.Until(ctx, "an event about "+about, atMost, func(ctx context.Context) (bool, string, error) {
		events, err := List[Event](ctx, c, "events", "--field-selector", "involvedObject.name="+about)
		state := fmt.Sprintf("%d others", len(events))
		for _, e := range events {
			if wanted(e) {
				found = e
				return true, "", nil
			}
			state += "; " + e.Reason + ": " + e.Message
		}
		return false, state, err
	})
	return found, err
}
