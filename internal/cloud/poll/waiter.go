package poll

import (
	"context"
	"slices"
	"time"
)

const (
	// slackShare is how long a look may be put off for others that are due soon, as a part of the
	// operation's usual duration.
	slackShare = 0.08
	leastSlack = 20 * time.Millisecond
	// stepShare bounds the time between two looks, as a part of the operation's age; the step
	// begins at nearStep, because most operations that were not done are done soon after.
	stepShare, nearStep = 0.1, 0.06
	leastStep, mostStep = 50 * time.Millisecond, 20 * time.Second
	// coldStep and leastCold are the same for a kind of which nothing is known yet, where many wait, of whom each
	// may need a look of its own.
	coldStep, leastCold = 0.22, 250 * time.Millisecond
	// quickStep bounds the steps from below for a kind that is quicker than all that.
	quickStep = 5 * time.Millisecond
	// longAge is the age from which an operation is looked up by itself if nothing is known about
	// its kind.
	longAge = 10 * time.Second
	// aloneAtOnce bounds how many are looked up by themselves in one turn, so that a cloud that has
	// become slow is not asked for each of a hundred operations.
	aloneAtOnce = 2
	// firstPause is the pause after a look that failed; it doubles up to mostPause.
	firstPause, mostPause = 250 * time.Millisecond, 10 * time.Second
)

// A waiter is one call of Wait. All but op, answers and failed is guarded by Poller.mu.
type waiter[K comparable, S any] struct {
	op      Operation[K]
	ctx     context.Context
	began   time.Time
	answers chan answer[S]
	failed  error // of the last look; only Wait's goroutine uses it

	// due is when it wants to be looked at, and slack how long that may be put off.
	due   time.Time
	slack time.Duration
	// teaches: its age is right and it was not found so late that it says nothing.
	teaches bool
	// counted: its first look at the usual age was taken in. share is its part in the look under way, among those of
	// its kind that are counted as it is, and first what it was in the look that counted it.
	counted      bool
	share, first float64
	// sought: its next look comes before the usual age, on purpose.
	sought bool
	// asked: a look is under way, or its answer is being dealt with; askedAt was its beginning.
	asked   bool
	askedAt time.Time
	look    *look
	// running is the last age at which it was seen running.
	running      time.Duration
	looks, fails int
	// aloneAt is the age from which it is looked up by itself the next time.
	aloneAt time.Duration
}

// enter registers a waiter and plans its first look.
func (p *Poller[K, S]) enter(ctx context.Context, op Operation[K]) *waiter[K, S] {
	now := time.Now()
	w := &waiter[K, S]{op: op, ctx: ctx, began: op.Began, answers: make(chan answer[S], 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	u, first := p.usualOf(op.Kind), p.first(op.Kind)
	if w.began.IsZero() {
		w.began, w.due = now, now
	} else {
		w.due = w.began.Add(first)
		w.teaches = now.Sub(w.began) < first/2
		if early := w.began.Add(u.early()); early.After(now) && early.Before(w.due) {
			w.due, w.sought = early, true
		}
		if end, ends := ctx.Deadline(); ends && first >= longUsual {
			w.soonBefore(now, end)
		}
	}
	w.slack = max(time.Duration(slackShare*float64(first)), leastSlack)
	w.aloneAt = 2 * first
	if !u.learnt {
		w.aloneAt = max(w.aloneAt, longAge)
	}
	p.waiters = append(p.waiters, w)
	p.cfg.Metrics.waits(1)
	p.plan(w)
	return w
}

// soonBefore makes the first look come within a part of the time until the waiter's end: nothing would be seen of
// operations that take longer than anybody waits.
func (w *waiter[K, S]) soonBefore(now, end time.Time) {
	if soon := now.Add(end.Sub(now) / earlyPart); soon.Before(w.due) {
		w.due, w.sought = soon, true
	}
}

// leave ends a waiter.
func (p *Poller[K, S]) leave(w *waiter[K, S]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiters = slices.DeleteFunc(p.waiters, func(other *waiter[K, S]) bool { return other == w })
	p.cfg.Metrics.waits(-1)
	if w.look != nil {
		w.look.left()
	}
	if len(p.waiters) == 0 && p.timer != nil {
		p.timer.Stop()
		p.planned = time.Time{}
	}
}

// ended takes in that the waiter's operation is over.
func (p *Poller[K, S]) ended(w *waiter[K, S], well bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !w.teaches || !well {
		return // what failed ended at some time of its own
	}
	u := p.usualOf(w.op.Kind)
	age := w.askedAt.Sub(w.began)
	if w.counted {
		u.missed(age, w.share, w.first)
	} else {
		u.found(true, w.share)
	}
	u.ended(w.running, age, w.sought)
	p.cfg.Metrics.learnt(w.op.Kind, u.at.Seconds())
}

// again plans the next look at an operation that runs on, or of which the look failed.
func (p *Poller[K, S]) again(w *waiter[K, S], failed error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.failed = failed
	u, age := p.usualOf(w.op.Kind), w.askedAt.Sub(w.began)
	w.asked = false
	if failed != nil {
		w.teaches = false
		pause := min(firstPause<<min(w.fails, 10), mostPause)
		w.fails++
		w.due, w.slack = time.Now().Add(p.jittered(pause)), pause/2
		p.plan(w)
		return
	}
	w.fails, w.running = 0, age
	if w.askedAt.Before(w.due.Add(-w.slack / 2)) {
		p.plan(w) // a look for others came along long before its own was due
		return
	}
	if first := w.began.Add(p.first(w.op.Kind)); !w.op.Began.IsZero() && w.askedAt.Before(first.Add(-w.slack)) {
		w.due, w.sought = first, false // it was looked at early, or more is known now
		p.plan(w)
		return
	}
	w.sought = false
	if w.teaches && !w.counted {
		w.counted, w.first = true, w.share
		u.found(false, w.share)
	}
	share, least := min(nearStep*float64(w.looks+1), stepShare), min(leastStep, u.at/3)
	if !u.learnt {
		share, least = coldStep, min(leastCold, u.at*2/3)
		if likely := p.likely(w.op.Kind); len(p.waiters) == 1 && age >= likely*4/5 && age < 2*likely {
			share, least = nearStep, leastStep // the end may be near, and one operation is looked at for little
		}
	}
	w.looks++
	if w.op.Began.IsZero() {
		age = max(age, u.at) // its true age is not known, and probably about this
	}
	step := min(max(time.Duration(share*float64(age)), least, quickStep), mostStep)
	w.due, w.slack = w.askedAt.Add(p.jittered(step)), max(step/2, leastSlack)
	if alone := w.began.Add(w.aloneAt); alone.After(w.askedAt) && alone.Before(w.due.Add(w.slack)) {
		w.due, w.slack = alone, leastSlack // no step goes past it
	}
	p.plan(w)
}

// jittered takes up to a fifth away.
func (p *Poller[K, S]) jittered(d time.Duration) time.Duration {
	return d - time.Duration(p.cfg.Rand()*float64(d)/5)
}

// plan sets the timer so that the waiter is looked at in time: at the last moment at which somebody
// becomes due before somebody else has waited too long.
func (p *Poller[K, S]) plan(w *waiter[K, S]) {
	if p.closed.Err() != nil {
		return
	}
	latest := w.due.Add(w.slack)
	switch {
	case p.planned.IsZero() || latest.Before(p.latest):
		p.replan()
	case w.due.After(p.planned) && !w.due.After(p.latest):
		p.arm(w.due)
	}
}

// replan computes the next turn from all waiters.
func (p *Poller[K, S]) replan() {
	p.planned, p.latest = time.Time{}, time.Time{}
	for _, w := range p.waiters {
		if latest := w.due.Add(w.slack); !w.asked && (p.latest.IsZero() || latest.Before(p.latest)) {
			p.latest = latest
		}
	}
	if p.latest.IsZero() {
		return
	}
	var at time.Time
	for _, w := range p.waiters {
		if !w.asked && !w.due.After(p.latest) && w.due.After(at) {
			at = w.due
		}
	}
	p.arm(at)
}

func (p *Poller[K, S]) arm(at time.Time) {
	p.planned = at
	if p.timer == nil {
		p.timer = time.AfterFunc(time.Until(at), p.turn)
		return
	}
	p.timer.Reset(time.Until(at))
}
