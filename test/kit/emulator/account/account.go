// Package account is what the emulated accounts have in common besides their API: ids and chance, what
// happens later, what the owner remembers, sees and changes, and how a test starts them. Web is the part
// for the clouds whose API is HTTP; the others need nothing of it.
package account

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// Dice give ids and decide what is left to chance. Both depend on the seed, on the names of things and on
// how many there were of a name before, not on what else the account does meanwhile. They have a lock of
// their own: an id is needed before and while the account's lock is held.
type Dice struct {
	Seed uint64

	mu      sync.Mutex
	numbers map[string]int
}

// Next returns the number of the next thing of a kind, from 1.
func (d *Dice) Next(kind string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.numbers == nil {
		d.numbers = map[string]int{}
	}
	d.numbers[kind]++
	return d.numbers[kind]
}

// UUID returns a UUID for the next thing of a kind with a name.
func (d *Dice) UUID(kind, name string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s %d", d.Seed, kind, name, d.Next(kind+" "+name)))
	sum[6], sum[8] = sum[6]&0x0f|0x40, sum[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// Lasting returns how long the next operation of a kind on something with a name takes.
func (d *Dice) Lasting(kind, name string, usual clock.Span, e faults.Effect) time.Duration {
	if e.Takes != (clock.Span{}) {
		usual = e.Takes
	}
	return usual.Pick(clock.Roll(d.Seed, kind, name, d.Next(kind+" of "+name)))
}

// Timers are what an account does later. Lock is the account's lock, which the callers of the methods hold.
type Timers struct {
	Clock *clock.Clock
	Lock  sync.Locker

	pending map[*time.Timer]bool
	stopped bool
}

// After calls f with the lock held when the emulated d has passed, unless Stop was called before; at once if
// it is nothing.
func (t *Timers) After(d time.Duration, f func()) {
	if d == 0 {
		f()
		return
	}
	var timer *time.Timer
	timer = t.Clock.AfterFunc(d, func() {
		t.Lock.Lock()
		defer t.Lock.Unlock()
		delete(t.pending, timer)
		if !t.stopped {
			f()
		}
	})
	if t.pending == nil {
		t.pending = map[*time.Timer]bool{}
	}
	t.pending[timer] = true
}

// Stop ends all timers, for ever.
func (t *Timers) Stop() {
	t.stopped = true
	for timer := range t.pending {
		timer.Stop()
	}
}

// Holds are the volumes, by an id K, that a test says are in use. The zero value is none.
type Holds[K comparable] struct {
	mu   sync.Mutex
	held map[K]int
}

// Hold marks a volume as in use on its machine until release is called: a detach meanwhile is a
// violation. It is for tests without real devices; those notice a mount by themselves.
func (h *Holds[K]) Hold(id K) (release func()) {
	h.add(id, 1)
	return sync.OnceFunc(func() { h.add(id, -1) })
}

// Held reports whether a volume is marked as in use.
func (h *Holds[K]) Held(id K) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held[id] > 0
}

func (h *Holds[K]) add(id K, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held == nil {
		h.held = map[K]int{}
	}
	h.held[id] += n
}
