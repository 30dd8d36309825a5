package poll

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// A look is one request for some waiters, or several if the source has no request for many. It is
// cancelled when all of its waiters have left.
type look struct {
	waiters int
	cancel  context.CancelFunc
}

// left is called for each waiter that no longer needs the look's answer.
func (l *look) left() {
	if l.waiters--; l.waiters == 0 {
		l.cancel()
	}
}

// turn looks at everything that is due.
func (p *Poller[K, S]) turn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Err() != nil {
		return
	}
	now := time.Now()
	var due, others []*waiter[K, S]
	ripe := 0
	for _, w := range p.waiters {
		switch {
		case w.asked:
		case !w.due.After(now):
			due = append(due, w)
		default:
			others = append(others, w)
			if w.due.Sub(now) <= 2*w.slack {
				ripe++
			}
		}
	}
	alone, together := apart(due, now)
	for _, w := range alone {
		p.begin(now, []*waiter[K, S]{w})
	}
	if len(together) > 0 && len(together)+ripe > 1 && p.cfg.Many != nil {
		together = append(together, others...) // a list answers for them too
	}
	if len(together) > 0 {
		p.begin(now, together)
	}
	p.replan()
}

// apart chooses those that have been running for so long that they are looked up by themselves.
func apart[K comparable, S any](due []*waiter[K, S], now time.Time) (alone, together []*waiter[K, S]) {
	slices.SortStableFunc(due, func(a, b *waiter[K, S]) int { return cmp.Compare(a.aloneAt, b.aloneAt) })
	for _, w := range due {
		if age := now.Sub(w.began); age >= w.aloneAt && len(alone) < aloneAtOnce {
			w.aloneAt = age + age/2
			alone = append(alone, w)
		} else {
			together = append(together, w)
		}
	}
	return alone, together
}

// begin starts a look for the waiters.
func (p *Poller[K, S]) begin(now time.Time, waiters []*waiter[K, S]) {
	// The context has the values of a waiter, for traces, and not its end.
	ctx, cancel := context.WithCancel(context.WithoutCancel(waiters[0].ctx))
	l := &look{waiters: len(waiters), cancel: cancel}
	keys := make([]K, 0, len(waiters))
	asking := make(map[K]struct{}, len(waiters))
	type group struct {
		kind    Kind
		counted bool
	}
	groups := map[group]int{}
	for _, w := range waiters {
		w.asked, w.askedAt, w.look = true, now, l
		if _, twice := asking[w.op.Key]; !twice {
			asking[w.op.Key] = struct{}{}
			keys = append(keys, w.op.Key)
		}
		if w.teaches {
			groups[group{w.op.Kind, w.counted}]++
		}
	}
	for _, w := range waiters {
		if w.teaches {
			w.share = 1 / float64(groups[group{w.op.Kind, w.counted}])
		}
	}
	stop := context.AfterFunc(p.closed, cancel)
	p.looks.Go(func() {
		defer stop()
		defer cancel()
		answers := p.cfg.look(ctx, keys, p.cfg.Metrics)
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, w := range waiters {
			w.look = nil
			w.answers <- answers[w.op.Key]
		}
	})
}
