package budget

import "time"

// Window is a limit of a cloud: a number of calls in a period.
type Window struct {
	Calls int
	Per   time.Duration
	// FromHeaders: the cloud's rate-limit headers describe this window.
	FromHeaders bool
	// Fraction, if not 0, is the part of the limit in the headers that this window allows: Calls follow it, unless they
	// are fixed.
	Fraction float64
	// Fixed: Calls is a limit that an operator has set. Otherwise Calls follow the cloud's headers.
	Fixed bool
	// SingleKind: the window counts requests of one kind only, so they leave no reserve to others.
	SingleKind bool
}

// window counts the requests of the last Per, and those of other programs as far as the headers show them.
type window struct {
	Window

	// sent has the times of this program's requests, oldest first.
	sent []time.Time
	// others is how many requests others had sent at a moment. They are assumed to leave the window evenly from then on.
	others float64
	since  time.Time
}

// margin is added to Per, because requests may reach the cloud in another order.
func (w *window) margin() time.Duration { return min(w.Per/50, time.Second) }

// forget drops requests that have left the window.
func (w *window) forget(now time.Time) {
	n := 0
	for n < len(w.sent) && now.Sub(w.sent[n]) > w.Per+w.margin() {
		n++
	}
	w.sent = w.sent[n:]
}

// foreign returns how many calls of the window others use.
func (w *window) foreign(now time.Time) float64 {
	gone := float64(now.Sub(w.since)) / float64(w.Per)
	return w.others * max(0, min(1, 1-gone))
}

// left returns how many requests the window can admit.
func (w *window) left(now time.Time) float64 {
	w.forget(now)
	return float64(w.Calls) - float64(len(w.sent)) - w.foreign(now)
}

// lacks returns how many calls are missing for a request that leaves a reserve. A window that is too small for a reserve has
// none.
func (w *window) lacks(now time.Time, p Priority) float64 {
	kept := reserve[p]
	if w.SingleKind {
		kept = 0
	}
	return 1 + float64(int(kept*float64(w.Calls))) - w.left(now)
}

// changes returns the time until the window may admit n more requests.
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

// learn updates the window from the cloud's headers.
func (w *window) learn(now time.Time, limit, remaining int) {
	if !w.Fixed {
		w.Calls = limit
	}
	w.forget(now)
	// The remaining calls may not include requests of this program that are in flight; until the next answer others then seem to
	// have used fewer. With a fixed limit, others use the difference between the cloud's remaining calls and the rest.
	w.others, w.since = max(0, float64(w.Calls-remaining-len(w.sent))), now
}

// full marks the window as used up, after a refusal.
func (w *window) full(now time.Time, pause time.Duration) {
	w.forget(now)
	w.others, w.since = max(0, float64(w.Calls-len(w.sent))), now.Add(pause)
}
