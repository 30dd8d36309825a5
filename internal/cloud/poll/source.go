package poll

import (
	"context"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Source is where the state of things can be looked up.
type Source[K comparable, S any] struct {
	// One looks at one thing.
	One func(ctx context.Context, key K) (S, error)
	// Many looks at several things with one request; the keys are in the order in which they were asked for. A key that its
	// answer lacks is looked up with One in the same turn. Nil where the cloud has no such request.
	//
	// If it fails with a kind that a later look cannot mend (fault.Denied, say), each key is looked
	// up with One.
	Many func(ctx context.Context, keys []K) (map[K]S, error)
}

// An answer is what a look found out about one thing.
type answer[S any] struct {
	state S
	err   error
}

// look finds out about all keys with as few requests as possible.
func (s Source[K, S]) look(ctx context.Context, keys []K, m *Metrics) map[K]answer[S] {
	if s.Many == nil || len(keys) == 1 {
		return s.each(ctx, keys, m)
	}
	states, err := s.Many(ctx, keys)
	m.looked("many", err)
	answers := make(map[K]answer[S], len(keys))
	if err != nil && passing(err) {
		for _, key := range keys {
			answers[key] = answer[S]{err: err}
		}
		return answers
	}
	var missing []K
	for _, key := range keys {
		if state, ok := states[key]; ok && err == nil {
			answers[key] = answer[S]{state: state}
		} else {
			missing = append(missing, key)
		}
	}
	for key, found := range s.each(ctx, missing, m) {
		answers[key] = found
	}
	return answers
}

// each looks at every key by itself, at the same time: how many requests run at once is for the
// budget to say.
func (s Source[K, S]) each(ctx context.Context, keys []K, m *Metrics) map[K]answer[S] {
	found := make([]answer[S], len(keys))
	one := func(i int) {
		found[i].state, found[i].err = s.One(ctx, keys[i])
		m.looked("one", found[i].err)
	}
	if len(keys) == 1 {
		one(0)
	} else {
		var group sync.WaitGroup
		for i := range keys {
			group.Go(func() { one(i) })
		}
		group.Wait()
	}
	answers := make(map[K]answer[S], len(keys))
	for i, key := range keys {
		answers[key] = found[i]
	}
	return answers
}

// passing reports whether a later look may succeed where this one failed.
func passing(err error) bool {
	switch fault.Of(err) {
	case fault.None, fault.Unavailable, fault.Busy, fault.Uncertain:
		return true
	default:
		return false
	}
}
