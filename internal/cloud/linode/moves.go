package linode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/queue"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// A move is one attach or detach in a Linode's queue. Its change may be waited for by the queue's watcher
// after the call has gone, so what it knows stands behind a lock.
type move struct {
	c          *Cloud
	id, linode int
	kind       poll.Kind
	puzzles    remote.Puzzles
	asked      time.Time // a look has to be younger to decide a detach

	mu sync.Mutex
	// waits: a change is under way, which began then; the zero time means that it was found running.
	waits bool
	began time.Time
	// sent: this call began it.
	sent bool
	// last is the newest state of the volume.
	last *volume
	// doubted is since when an attachment that was found has to stay, or zero: nobody tells whether it is being
	// undone.
	doubted time.Time
}

// do lets the move happen in its turn and returns when the cloud shows that it has.
func (m *move) do(ctx context.Context, send, wait func(ctx context.Context) error) error {
	err := m.c.machines.Do(ctx, queue.Change{Key: string(nodeID(m.linode)), Send: send, Wait: func(ctx context.Context) error {
		m.mu.Lock()
		waits := m.waits
		m.mu.Unlock()
		if !waits {
			return nil
		}
		return wait(ctx)
	}})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s volume %d, Linode %d: %w", m.kind, m.id, m.linode, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sent {
		return unseen(err)
	}
	return err
}

// note writes down how the move stands.
func (m *move) note(waits, sent bool, began time.Time, last *volume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits, m.began, m.sent = waits, began, m.sent || sent
	if last != nil {
		m.last = last
	}
}

func (m *move) doubt(since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doubted = since
}

// stays reports whether an attachment that was found has stayed for longer than a detach takes, if that is needed.
func (m *move) stays() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.doubted.IsZero() || time.Since(m.doubted) >= longMove
}

func (m *move) since() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.began
}

func (m *move) newest() *volume {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// unseen gives the failed wait for a change that was sent its kind. Only a change that is seen not to have
// happened has changed nothing; of one that nobody could see to its end the outcome is open.
func unseen(err error) error {
	if errors.Is(err, errGivenUp) || errors.Is(err, fault.Uncertain) {
		return err
	}
	return fmt.Errorf("%w: the change goes on unseen: %w", fault.Uncertain, err)
}

// longMove is how long an attach or detach may take until the events are asked about it. Its Linode's queue
// is held until then, and no longer than the cloud says that the change is under way.
const longMove = 10 * time.Second

func (m *move) long() time.Duration { return max(longMove, 2*m.c.changes.Usual(m.kind)) }
