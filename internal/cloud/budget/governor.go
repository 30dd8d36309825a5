package budget

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// firstPause is the pause after a refusal if the cloud does not ask for one; it doubles with each refusal in a row, up to
	// mostPause. mostTrusted bounds the pause that the cloud asks for.
	firstPause, mostPause = time.Second, 30 * time.Second
	mostTrusted           = time.Hour
	// After a refusal there is a gap of firstGap between requests. It doubles with each further refusal, up to mostGap, shrinks by
	// a tenth with each request that is not refused, and ends below leastGap.
	firstGap, mostGap, leastGap = 100 * time.Millisecond, 2 * time.Second, 20 * time.Millisecond
)

// ErrNotSent is in the error of a request that waited for the budget until its context ended.
var ErrNotSent = errors.New("wait for the API budget")

// Config configures a Governor.
type Config struct {
	// Name distinguishes several Governors of one cloud in metrics and errors, such as "list". It may be empty.
	Name string
	// Windows are the limits, which all apply. Without any, requests are limited only after the cloud has refused one.
	Windows []Window
	// Metrics may be nil.
	Metrics *Metrics
	// Rand returns numbers in [0, 1) for jitter; nil means math/rand/v2.
	Rand func() float64
}

// Governor admits requests within the budget. It has no goroutine.
type Governor struct {
	name    string
	metrics *Metrics
	rand    func() float64

	mu      sync.Mutex
	windows []*window
	waiting []*ticket // in the order of their arrival
	timer   *time.Timer
	// No request is admitted before paused. gap is the current minimum time between two requests after a refusal, and next is when
	// the next one may be sent.
	paused time.Time
	gap    time.Duration
	next   time.Time
	// refusals is the number of refusals in a row, words the message of the last one.
	refusals int
	words    string
}

// ticket is a waiting request.
type ticket struct {
	priority Priority
	next     bool // it goes before all others
	arrived  time.Time
	granted  chan struct{}
}

// New returns a Governor.
func New(cfg Config) *Governor {
	g := &Governor{name: cfg.Name, metrics: cfg.Metrics, rand: cfg.Rand}
	if g.rand == nil {
		g.rand = rand.Float64
	}
	for _, w := range cfg.Windows {
		g.windows = append(g.windows, &window{Window: w})
	}
	return g
}

// Acquire waits until a request may be sent. If the context ends meanwhile, the error is fault.Unavailable and ErrNotSent, wraps the
// context's error and has the message of the last refusal.
func (g *Governor) Acquire(ctx context.Context, p Priority) error { return g.acquire(ctx, p, false) }

// AcquireNext is Acquire for a request that is decided by a read right before and soon too late. The read has waited in its place, so the
// request goes before all others: behind a long queue it would always be too late, and only reads would be sent.
func (g *Governor) AcquireNext(ctx context.Context, p Priority) error { return g.acquire(ctx, p, true) }

func (g *Governor) acquire(ctx context.Context, p Priority, next bool) error {
	if p = p.known(); p == Default {
		p = Write
	}
	t := &ticket{priority: p, next: next, arrived: time.Now(), granted: make(chan struct{})}
	if ctx.Err() != nil { // not because of the budget
		return fmt.Errorf("nothing was sent: %w: %w", fault.Unavailable, ctx.Err())
	}
	g.mu.Lock()
	g.waiting = append(g.waiting, t)
	g.grant()
	g.mu.Unlock()
	select {
	case <-t.granted:
		g.metrics.waits(p, time.Since(t.arrived))
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := slices.Index(g.waiting, t); at >= 0 {
		g.waiting = slices.Delete(g.waiting, at, at+1)
	} else { // granted at the same moment
		for _, w := range g.windows {
			w.sent = w.sent[:max(0, len(w.sent)-1)]
		}
	}
	g.grant()
	g.metrics.waits(p, time.Since(t.arrived))
	return g.refuse(ctx)
}

// refuse returns the error for a request that was not sent.
func (g *Governor) refuse(ctx context.Context) error {
	name := g.name
	if name != "" {
		name = " of " + name
	}
	said := "the limit is reached"
	if g.words != "" {
		said = "the cloud refused with: " + g.words
	}
	return fmt.Errorf("%w%s: %w: %w: %s", ErrNotSent, name, fault.Unavailable, ctx.Err(), said)
}

// Learn updates the windows from an answer. Callers call it after every request, also with the zero Rate.
func (g *Governor) Learn(r Rate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if w := g.windowOf(r); w != nil && r.Limit > 0 && !r.Refused {
		w.learn(now, r.Limit, max(0, r.Remaining))
		if w.FromHeaders {
			g.share(r.Limit)
		}
	}
	if r.Refused {
		g.refused(now, r)
	} else if !now.Before(g.paused) { // an answer from before the refusal says nothing
		g.refusals, g.words = 0, ""
		if g.gap -= g.gap / 10; g.gap < leastGap {
			g.gap = 0
		}
	}
	g.grant()
}

// share updates the windows that are a Fraction of the limit in the headers.
func (g *Governor) share(limit int) {
	for _, w := range g.windows {
		if w.Fraction > 0 && !w.Fixed {
			w.Calls = max(1, int(w.Fraction*float64(limit)))
		}
	}
}

// Has reports whether a window has this limit.
func (g *Governor) Has(limit int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.windows, func(w *window) bool { return w.Calls == limit })
}

// windowOf returns the window that a Rate describes, or nil.
func (g *Governor) windowOf(r Rate) *window {
	var learn *window
	for _, w := range g.windows {
		if w.Calls == r.Limit {
			return w
		}
		if w.FromHeaders {
			learn = w
		}
	}
	return learn
}

// refused starts a pause. Refusals of requests that were sent at the same time count as one.
func (g *Governor) refused(now time.Time, r Rate) {
	g.words = r.Words
	if now.Before(g.paused) {
		return
	}
	g.refusals++
	pause := min(firstPause<<min(g.refusals-1, 10), mostPause)
	var full *window // the one that has no room: the cloud's, or else the shortest
	for _, w := range g.windows {
		if full == nil || w.Per < full.Per {
			full = w
		}
	}
	switch until := r.Reset.Sub(now); {
	case r.RetryAfter > 0:
		pause = min(r.RetryAfter, mostTrusted)
	case r.Limit > 0 && r.Remaining <= 0 && until > 0:
		pause, full = min(until, mostTrusted), g.windowOf(r)
	}
	pause += time.Duration(g.rand() * float64(pause) / 10) // so that two controllers do not come back together
	g.paused = now.Add(pause)
	g.gap = min(max(2*g.gap, firstGap), mostGap)
	if full != nil {
		full.full(now, pause)
	}
}

// grant admits requests by urgency and sets the timer for the others.
func (g *Governor) grant() {
	now := time.Now()
	wait := time.Duration(-1)
	for len(g.waiting) > 0 {
		t := g.first(now)
		if wait = g.wait(now, t); wait > 0 {
			break
		}
		for _, w := range g.windows {
			w.sent = append(w.sent, now)
		}
		g.next = now.Add(g.gap)
		at := slices.Index(g.waiting, t)
		g.waiting = slices.Delete(g.waiting, at, at+1)
		close(t.granted)
	}
	for _, w := range g.windows {
		g.metrics.leaves(g.name, w, now)
	}
	switch {
	case len(g.waiting) == 0:
		if g.timer != nil {
			g.timer.Stop()
		}
	case g.timer == nil:
		g.timer = time.AfterFunc(wait, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.grant()
		})
	default:
		g.timer.Reset(wait)
	}
}

// urgency is the current priority of a ticket, which rises while it waits. It takes long to reach that of a detach, so that many
// creates that wait for the next minute's budget do not delay detaches.
func (t *ticket) urgency(now time.Time) Priority {
	waited := now.Sub(t.arrived)
	if t.next {
		return Default
	}
	if t.priority == Detach || waited >= starved {
		return Detach
	}
	return max(Attach, t.priority-Priority(waited/rise))
}

// first returns the ticket with the highest urgency, the oldest if there are several.
func (g *Governor) first(now time.Time) *ticket {
	return slices.MinFunc(g.waiting, func(a, b *ticket) int { return int(a.urgency(now) - b.urgency(now)) })
}

// wait returns the time until the ticket may be admitted, or 0.
func (g *Governor) wait(now time.Time, t *ticket) time.Duration {
	if wait := max(g.paused.Sub(now), g.next.Sub(now)); wait > 0 {
		return wait
	}
	p := t.urgency(now)
	var wait time.Duration
	for _, w := range g.windows {
		if lacks := w.lacks(now, p); lacks > 0 {
			wait = max(wait, w.changes(now, lacks))
		}
	}
	if wait > 0 && p > Detach { // it may go when it has risen
		rises := rise - now.Sub(t.arrived)%rise
		wait = min(wait, rises)
	}
	return wait
}
