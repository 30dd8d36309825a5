package budget

import "time"

// Window is one limit of a cloud: so many calls in so much time.
type Window struct {
	Calls int
	Per   time.Duration
	// FromHeaders: the cloud's rate-limit headers describe this window.
	FromHeaders bool
	// Fraction, if not 0, is the part of the limit in the headers that this window allows: Calls follow it, unless they
	// are fixed.
	Fraction float64
	// Fixed: Calls are the most that may be sent here, whatever the cloud says of its own limit, because
	// somebody has decided so. Otherwise Calls follow what the cloud says.
	Fixed bool
	// SingleKind: only requests of one kind are counted here, so none of them leaves a reserve to others.
	SingleKind bool
}

// A window counts what was sent within the last Per, and what others sent as far as the headers say.
type window struct {
	Window

	// sent has the times of our requests, oldest first.
	sent []time.Time
	// others is what others had used at a moment; it is taken to leave the window evenly from then.
	others float64
	since  time.Time
}

// margin is added to Per: a request may reach the cloud later than one that was sent after it.
func (w *window) margin() time.Duration { return min(w.Per/50, time.Second) }

// forget drops what has left the window.
func (w *window) forget(now time.Time) {
	n := 0
	for n < len(w.sent) && now.Sub(w.sent[n]) > w.Per+w.margin() {
		n++
	}
	w.sent = w.sent[n:]
}

// foreign is how much of the window others use.
func (w *window) foreign(now time.Time) float64 {
	gone := float64(now.Sub(w.since)) / float64(w.Per)
	return w.others * max(0, min(1, 1-gone))
}

// left is how many requests the window has room for.
func (w *window) left(now time.Time) float64 {
	w.forget(now)
	return float64(w.Calls) - float64(len(w.sent)) - w.foreign(now)
}

// lacks is how much room is missing for a request that leaves a reserve. A window that is too small
// for any reserve has none.
func (w *window) lacks(now time.Time, p Priority) float64 {
	kept := reserve[p]
	if w.SingleKind {
		kept = 0
	}
	return 1 + float64(int(kept*float64(w.Calls))) - w.left(now)
}

// changes is how long it takes until there may be more room by n.
func (w *window) changes(now time.Time, n float64) time.Duration {
	wait := w.Per
	if len(w.sent) > 0 {
		wait = w.sent[0].Add(w.Per + w.margin()).Sub(now)
	}
	if w.foreign(now) > 0 {
		wait = min(wait, time.Duration(n/w.others*float64(w.Per)))
	}
	return max(wait, time.Millisecond)
}

// learn takes in what the cloud says about the window.
func (w *window) learn(now time.Time, limit, remaining int) {
	if !w.Fixed {
		w.Calls = limit
	}
	w.forget(now)
	// Requests of ours that are under way may not be counted in remaining yet: then others seem to
	// have used less, until the next answer. Where the limit is fixed, others use what the cloud has not got
	// of the rest of it.
	w.others, w.since = max(0, float64(w.Calls-remaining-len(w.sent))), now
}

// full takes in that there is no room, and that it will come back only after a while.
func (w *window) full(now time.Time, pause time.Duration) {
	w.forget(now)
	w.others, w.since = max(0, float64(w.Calls-len(w.sent))), now.Add(pause)
}
