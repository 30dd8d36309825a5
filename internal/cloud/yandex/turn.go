package yandex

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/queue"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// begin sends a change of an object and returns the operation that the cloud has taken on.
func (c *Cloud) begin(ctx context.Context, object, doing string, send func(ctx context.Context) (*operation.Operation, error)) (*operation.Operation, error) {
	begun := make(chan *operation.Operation, 1)
	err := c.work.Write(ctx, object, func(ctx context.Context) error {
		sent := time.Now()
		op, err := send(ctx)
		if _, repeats := ctx.Value(keyOfCall{}).(string); err == nil && !repeats {
			c.clock.saw(sent, op)
		}
		if err == nil && op.GetId() == "" {
			err = fmt.Errorf("%w: the cloud's answer names no operation", fault.Uncertain)
		}
		if err == nil {
			begun <- op
		}
		return err
	})
	if err != nil {
		return nil, writeError(doing, err)
	}
	return <-begun, nil
}

// A turn is one operation in the queue of the folder, and of the machine if it has one. The operation may be
// watched by the queue after the call has gone, so it stands behind a lock.
type turn struct {
	c *Cloud
	// doing is for errors, machine the key of the queue or empty.
	doing, machine string
	// send begins the operation. A nil change means that nothing has to be waited for.
	send func(ctx context.Context) (*change, error)
	// shows reports whether a state is what the operation is for.
	shows func(sight) bool
	// decide says what a refusal means, or the failure of an operation, from the state: nil where the wanted
	// state is there already, fault.Busy where the same is to be sent again. Nil: it means what it says.
	decide func(ctx context.Context, refusal error) error

	puzzles remote.Puzzles
	failure error // of the last operation; only the call uses it

	mu    sync.Mutex
	begun *change // nil: nothing has to be waited for
	seen  sight
}

// do lets the change happen in its turn and returns what was seen at its end. An operation that the cloud
// gave up goes back into the queue if its reason is one that passes, such as a machine that is booting.
func (t *turn) do(ctx context.Context) (sight, error) {
	for {
		err := t.c.changes.Do(ctx, queue.Change{Key: t.machine, Send: t.try, Wait: t.wait})
		if err != nil && t.decide != nil && t.failure == nil && hasFailed(err) && t.running() != nil {
			t.failure = err
			t.set(nil)
			continue
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if err == nil {
			return t.seen, nil
		}
		err = fmt.Errorf("%s: %w", t.doing, err)
		if t.begun != nil {
			err = unseen(err)
		}
		return sight{}, err
	}
}

// try sends the change, or says from the state what the refusal means: after everything that is under way has
// ended, because an attachment that is being undone is none (failure A1 of the catalogue), and read then,
// because a list may be old (A9).
func (t *turn) try(ctx context.Context) error {
	refusal := t.failure
	t.failure = nil
	t.set(nil)
	if refusal == nil {
		begun, err := t.send(ctx)
		if err == nil {
			t.set(begun)
			return nil
		}
		if !refused(err) || t.decide == nil {
			return err
		}
		refusal = err
	}
	return t.decide(ctx, refusal)
}

// wait is called again, by the queue, when the call has gone.
func (t *turn) wait(ctx context.Context) error {
	begun := t.running()
	if begun == nil {
		return nil
	}
	seen, err := t.c.await(ctx, *begun, t.shows)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen = seen
	return err
}

func (t *turn) set(begun *change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun = begun
}

func (t *turn) running() *change {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begun
}
