package yandex

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
)

// manners are what has been seen of when the cloud shows an attach or detach: with the end of its operation, or
// before. One that shows before its end may still fail, and then lists say nothing.
type manners struct {
	mu     sync.Mutex
	atEnd  map[poll.Kind]bool // known: whether it shows with the end only
	scouts map[string]scouted // by operation
}

// scouted is what was seen of an operation while it was running.
type scouted struct {
	// hidden is when its change did not show yet, for the last time; zero: not seen.
	hidden time.Time
	// early: it showed when the operation had been seen running just before.
	early bool
}

// lastPart is in which part of an operation's life, from its end, its change must not have shown yet to count as one
// that shows with the end.
const lastPart = 4

// has reports whether it is known of a kind.
func (m *manners) has(kind poll.Kind) bool {
	if kind != kindAttach && kind != kindDetach {
		return true // a disk that is READY is ready, and one that is gone is gone
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.atEnd[kind]
	return known
}

// shown reports whether the state of a disk tells the end of an operation of a kind.
func (m *manners) shown(kind poll.Kind) bool {
	if kind != kindAttach && kind != kindDetach {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.atEnd[kind]
}

func (m *manners) note(kind poll.Kind, atEnd bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.atEnd == nil {
		m.atEnd = map[poll.Kind]bool{}
	}
	if before, known := m.atEnd[kind]; !known || before { // seen early once is enough
		m.atEnd[kind] = atEnd
	}
}

func (m *manners) of(operation string) scouted {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.scouts[operation]
}

func (m *manners) set(operation string, now scouted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.scouts == nil {
		m.scouts = map[string]scouted{}
	}
	m.scouts[operation] = now
}

func (m *manners) forget(operation string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.scouts, operation)
}

// scout looks at one operation of each kind whose manners are not known, beside a list that was asked for at a
// moment. What it tells counts for all others of the kind at once.
func (c *Cloud) scout(ctx context.Context, keys []watch, list listing, asked time.Time) map[watch]sight {
	found := make(map[watch]sight, len(keys))
	for _, kind := range []poll.Kind{kindAttach, kindDetach} {
		at := slices.IndexFunc(keys, func(w watch) bool { return w.kind == kind })
		if at < 0 || c.manners.has(kind) || time.Until(c.paces.of(keys[at].operation).next) > 0 {
			continue
		}
		key, hidden := keys[at], time.Time{}
		if d := list.disks[key.disk]; d != nil && key.under(d) && list.since(key.taken) {
			hidden = asked
		}
		if s, err := c.lookBeside(ctx, key, hidden); err == nil {
			found[key] = s
		}
	}
	return found
}

// observe learns from an operation that was looked at just now whether its change shows before its end. hidden is when
// it did not show yet; zero: that is to be looked for.
func (c *Cloud) observe(ctx context.Context, key watch, op *operation.Operation, hidden time.Time) {
	if c.manners.has(key.kind) || key.taken.IsZero() {
		return
	}
	now, seen := time.Now(), c.manners.of(key.operation)
	if !hidden.IsZero() {
		seen.hidden = hidden
	}
	switch {
	case op.GetError() != nil:
	case op.GetDone():
		if !seen.hidden.IsZero() && !seen.early && now.Sub(seen.hidden) <= now.Sub(key.taken)/lastPart {
			c.manners.note(key.kind, true)
		}
	case seen.early:
		c.manners.note(key.kind, false) // and it runs on
	case !hidden.IsZero():
		c.manners.set(key.operation, seen)
	default:
		d, err := c.look(ctx, key.disk)
		if err != nil || d == nil {
			return // the next look will do as well
		}
		if seen.early = !key.under(d); !seen.early {
			seen.hidden = now
		}
		c.manners.set(key.operation, seen)
	}
}
