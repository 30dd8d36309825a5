package ops

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/telemetry"
)

const (
	// ageShare slows the reads of an old operation down: the next read is after this fraction of its age.
	ageShare = 8
	// gain is the weight of one operation in the mean of its kind and the deviation.
	gain = 0.25
	// The first read is due at the mean less this many deviations, plus firstShare of a tick, but at most maxFirst after the
	// start: one operation that took minutes must not hide that the next one takes seconds.
	deviations, firstShare = 1.25, 0.125
	maxFirst               = 10 * time.Second
	// maxPause is the maximum pause after failed reads, which doubles from one tick.
	maxPause = 10 * time.Second
	// freshOperation is how long a new operation may be missing, because a read may be served by a stale replica (hashicorp/terraform#481).
	freshOperation = 10 * time.Second
	// hangs is how long a read of many operations may take before another read begins.
	hangs = 5 * time.Second
	// readTimeout is the time limit of one read: up to three requests in a row, each with AnswerTimeout.
	readTimeout = 3 * AnswerTimeout
)

// poller reads the states of operations for all callers that wait. While there are any, it makes one read a tick, of all operations
// that are due and that no other read is about. A read that hangs delays no other operation for longer than hangs.
type poller struct {
	r *Runner

	mu      sync.Mutex
	waiting map[*waiter]bool
	timer   *time.Timer
	next    time.Time // not before
	fails   int       // in a row
	failed  error     // the last one
	// past has the durations by kind; those of "" are of all kinds.
	past map[string]*durations
}

// durations are the mean of past durations and the mean deviation from it, as TCP estimates round trips.
type durations struct{ mean, deviation time.Duration }

func (d *durations) add(took time.Duration) {
	if d.mean == 0 {
		d.mean = took
		return
	}
	off := took - d.mean
	d.mean += time.Duration(gain * float64(off))
	d.deviation += time.Duration(gain * float64(off.Abs()-d.deviation))
}

// waiter waits for one operation.
type waiter struct {
	op      Operation
	began   time.Time
	due     time.Time
	reading bool // a read of it is under way
	outcome chan Outcome
}

func newPoller(r *Runner) *poller {
	return &poller{r: r, waiting: map[*waiter]bool{}, past: map[string]*durations{"": {}}}
}

// failedOperation is the failure of an operation.
type failedOperation struct{ why error }

func (f *failedOperation) Error() string { return f.why.Error() }
func (f *failedOperation) Unwrap() error { return f.why }

// wait waits for the end of the operation and returns nil or a failedOperation. After any other error its outcome is unknown.
func (p *poller) wait(ctx context.Context, op Operation) error {
	op.request = telemetry.RequestOf(ctx)
	w := p.enter(op)
	defer p.leave(w)
	select {
	case out := <-w.outcome:
		switch {
		case out.Err == nil:
			return nil
		case out.Done:
			return &failedOperation{out.Err}
		default:
			return out.Err
		}
	case <-ctx.Done():
		return p.unanswered(op, ctx.Err())
	case <-p.r.life.Done():
		return p.unanswered(op, fault.Unavailable)
	}
}

func (p *poller) unanswered(op Operation, why error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return fmt.Errorf("wait for operation %s: %w: the last read failed: %w", op.ID, why, p.failed)
	}
	return fmt.Errorf("wait for operation %s: %w", op.ID, why)
}

func (p *poller) enter(op Operation) *waiter {
	now := time.Now()
	w := &waiter{op: op, began: op.Began, due: now, outcome: make(chan Outcome, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.began.IsZero() {
		w.began = now
	} else {
		w.due = w.began.Add(p.first(op.Kind))
	}
	p.waiting[w] = true
	p.r.cfg.Metrics.waits(+1)
	p.plan()
	return w
}

// of returns the durations of a kind, or of all kinds if it has none yet.
func (p *poller) of(kind string) *durations {
	if past := p.past[kind]; past != nil {
		return past
	}
	return p.past[""]
}

// first returns the age of an operation at its first read. Few of its kind end before.
func (p *poller) first(kind string) time.Duration {
	past := p.of(kind)
	late := firstShare * float64(p.r.cfg.Tick)
	return max(min(past.mean+time.Duration(late-deviations*float64(past.deviation)), maxFirst), p.tick())
}

func (p *poller) leave(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, w)
	p.r.cfg.Metrics.waits(-1)
	p.plan()
}

// tick returns the time between two reads, with a jitter of up to a quarter.
func (p *poller) tick() time.Duration {
	return time.Duration((1 + p.r.cfg.Rand()/4) * float64(p.r.cfg.Tick))
}

// plan sets the timer for the next read.
func (p *poller) plan() {
	if p.timer != nil {
		p.timer.Stop()
	}
	var at time.Time
	for w := range p.waiting {
		if !w.reading && (at.IsZero() || w.due.Before(at)) {
			at = w.due
		}
	}
	if at.IsZero() || p.r.life.Err() != nil {
		return
	}
	if at.Before(p.next) {
		at = p.next
	}
	p.timer = time.AfterFunc(time.Until(at), func() { p.r.spawn(p.read) })
}

// read reads the operations that are due. If a list shows several, it also reads those that are due by the next tick, and with at least
// two of these all others.
func (p *poller) read() {
	p.mu.Lock()
	due, soon, pause := []Operation{}, time.Now(), time.Duration(0)
	if p.r.lister != nil { // otherwise each operation has a tick of its own
		soon, pause = soon.Add(p.r.cfg.Tick), p.tick()
	}
	var others []Operation
	asked := map[*waiter]bool{}
	for w := range p.waiting {
		switch {
		case w.reading:
		case w.due.After(soon):
			others = append(others, w.op)
		default:
			asked[w], w.reading = true, true
			due = append(due, w.op)
		}
	}
	if p.r.lister != nil && len(due) > 1 {
		due = append(due, others...)
	}
	if len(due) == 0 {
		p.mu.Unlock()
		return
	}
	if p.r.lister != nil {
		p.next = time.Now().Add(hangs)
	}
	p.plan()
	p.mu.Unlock()

	ctx, cancel := context.WithTimeout(p.r.life, readTimeout)
	defer cancel()
	if len(due) == 1 { // a read of several belongs to none of their requests
		ctx = telemetry.WithRequest(ctx, due[0].request)
	}
	err := Guard(func() error {
		return p.r.outcomes(ctx, due, func(found map[string]Outcome) { p.deliver(asked, found) })
	})
	p.r.cfg.Metrics.read(len(due), err)

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed = err; err == nil {
		p.fails, p.next = 0, time.Now().Add(pause)
	} else {
		p.next = time.Now().Add(min(p.tick()<<min(p.fails, 10), maxPause))
		p.fails++
	}
	for w := range asked { // what could not be read
		w.reading = false
		if err == nil {
			w.again(p.tick())
		}
	}
	p.plan()
}

// again sets when an operation that goes on is due, at least after a pause.
func (w *waiter) again(pause time.Duration) {
	w.reading, w.due = false, time.Now().Add(max(pause, time.Since(w.began)/ageShare))
}

// deliver gives the outcomes to their waiters, and sets when the other operations of the read are due again. It removes both from asked.
func (p *poller) deliver(asked map[*waiter]bool, found map[string]Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.waiting {
		out, known := found[w.op.ID]
		switch {
		case known && (out.Done || out.Err != nil):
			if out.Done && out.Err == nil && !w.op.Began.IsZero() {
				p.learn(w.op.Kind, cmp.Or(out.Took, time.Since(w.began)-p.r.cfg.Tick/2)) // it ended since the read before
			}
			w.outcome <- out
			delete(p.waiting, w)
			delete(asked, w)
		case known && asked[w]:
			w.again(max(p.tick(), out.Again))
			delete(asked, w)
		}
	}
	p.plan()
}

// learn adds the duration of an operation.
func (p *poller) learn(kind string, took time.Duration) {
	if p.past[kind] == nil {
		p.past[kind] = &durations{}
	}
	p.past[kind].add(took)
	if kind != "" {
		p.past[""].add(took)
	}
}

// close stops the reads.
func (p *poller) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
}

// outcomes reads operations: several with the list, and those that it lacks concurrently and one by one. It reports each as soon as it is
// read, because another read may hang. It fails only if nothing could be read at all.
func (r *Runner) outcomes(ctx context.Context, of []Operation, report func(map[string]Outcome)) error {
	found := map[string]Outcome{}
	if r.lister != nil && len(of) > 1 && r.lister.List(ctx, of, found) != nil {
		first, err := r.outcome(ctx, of[0]) // it shows whether the API works at all
		if err != nil {
			return err
		}
		found[of[0].ID] = first
	}
	report(found)
	missing := slices.DeleteFunc(slices.Clone(of), func(op Operation) bool {
		_, known := found[op.ID]
		return known
	})
	errs := make([]error, len(missing))
	var group sync.WaitGroup
	for n, op := range missing {
		group.Go(func() {
			errs[n] = Guard(func() error {
				out, err := r.outcome(telemetry.WithRequest(ctx, op.request), op)
				if err == nil {
					report(map[string]Outcome{op.ID: out})
				}
				return err
			})
		})
	}
	group.Wait()
	if len(found) > 0 || slices.Contains(errs, nil) {
		return nil
	}
	return errs[0]
}

// outcome reads one operation. An error is about this read only; a refusal of it becomes the outcome, because it would not be shown later
// either.
func (r *Runner) outcome(ctx context.Context, op Operation) (Outcome, error) {
	out, err := r.cfg.Tracker.Outcome(ctx, op)
	switch kind := fault.Of(err); {
	case kind == fault.NotFound && (op.Began.IsZero() || time.Since(op.Began) < freshOperation): // one that was found running is there
		return Outcome{}, nil
	case slices.Contains([]fault.Kind{fault.None, fault.Unavailable, fault.Busy}, kind):
		return out, err
	}
	return Outcome{Err: err}, nil
}
