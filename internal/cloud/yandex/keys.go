package yandex

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// mostKeys is how many keys one call tries. A used one is answered quickly, and a process that knows nothing has to
// pass all that failed while the cloud had no room for hours.
const mostKeys = 64

// A making is a create under an idempotency key. A key that the cloud knows is answered with the operation
// that it began once, whatever has become of it: it may be running, which is the one to wait for; it may have
// made what is there, which an earlier call knows of; and it may have failed, or what it made is gone. Then
// the key is used up, and the next one follows from that operation, so every controller finds the same.
type making struct {
	c             *Cloud
	doing         string
	what, request string
	send          func(ctx context.Context) (*operation.Operation, error)

	// own: it was this call that began the operation that counts. asked is when it sent the create that was answered
	// with it; zero: this process has waited for it before.
	own   bool
	asked time.Time
	// earlier is the disk that an operation had made which was over when it was asked for, and twins are
	// others of its name. failure is why such an operation failed.
	earlier *compute.Disk
	twins   []*compute.Disk
	failure error
}

// begunSince reports whether an operation was begun by the request that was sent at a moment and has just been
// answered, and not by an earlier one under the same key: its time, which the cloud tells in seconds, is not before
// that second and not after the answer. One of the same second that another process has begun looks the same; a
// clock that differs from the cloud's by more makes an own one look like another's, which is the safe side.
func begunSince(op *operation.Operation, asked time.Time) bool {
	created := op.GetCreatedAt().AsTime()
	return !created.Before(asked.Truncate(time.Second)) && !created.After(time.Now())
}

// begin sends the create. It returns the id of what is being made and the operation, or no operation where it
// is made already.
func (m *making) begin(ctx context.Context) (id, op string, err error) {
	chain := m.c.chains.of(m.what, m.request)
	for range mostKeys {
		key := m.c.idempotencyKey(m.what, m.request, chain)
		asked := time.Now()
		begun, err := m.c.begin(withKey(ctx, key), m.what+" "+m.request, m.doing, m.send)
		if err != nil {
			return "", "", err
		}
		if id, err = madeBy(begun); err != nil {
			return "", "", err
		}
		known := m.c.chains.saw(begun.GetId())
		m.own, m.asked = !known && begunSince(begun, asked), time.Time{}
		if !known {
			m.asked = asked
		}
		if !begun.GetDone() {
			return id, begun.GetId(), nil
		}
		m.failure = failureOf(begun)
		there, err := m.became(ctx, id)
		switch {
		case err != nil:
			return "", "", fmt.Errorf("%s: what became of operation %s: %w: %w", m.doing, begun.GetId(), fault.Uncertain, err)
		case there && known && m.failure == nil:
			return "", "", fmt.Errorf("%s: an earlier call has made %s for it: %w", m.doing, id, fault.Conflict)
		case there:
			return id, "", nil
		case m.what == keySnapshot && !m.c.chains.deleted(id):
			m.c.chains.making(m.request, id) // the key may be forgotten some day
			return "", "", errLost(m.request, id, m.failure)
		}
		chain += "/" + begun.GetId()
		m.c.chains.keep(m.what, m.request, chain)
	}
	if m.failure != nil {
		return "", "", m.failure
	}
	return "", "", fmt.Errorf("%s: what earlier calls made for it was removed; the next attempt goes on from there: %w", m.doing, fault.Unavailable)
}

// became reports whether there is what an operation has made that was over when it was asked for. What a failed
// one has left goes, but for a snapshot that somebody may know of.
func (m *making) became(ctx context.Context, id string) (there bool, err error) {
	switch m.what {
	case keySnapshot:
		return m.c.snapshotThere(ctx, cloud.SnapshotID(id), nil)
	case keyTemporary:
		return m.c.temporaryThere(ctx, cloud.SnapshotID(id), m.failure)
	}
	if m.failure != nil {
		if err := m.c.discard(ctx, cloud.VolumeID(id), m.failure); fault.Of(err) == fault.Uncertain {
			return false, err
		}
		return false, nil
	}
	d, err := m.c.look(ctx, cloud.VolumeID(id))
	if err != nil || d == nil || d.GetStatus() != compute.Disk_READY {
		return false, err
	}
	same, err := m.c.named(ctx, d.GetName())
	m.earlier, m.twins = d, others(same, idOf(d))
	return true, err
}

// madeBy is the id of what a create makes, which is known at once.
func madeBy(op *operation.Operation) (string, error) {
	if meta, err := op.GetMetadata().UnmarshalNew(); err == nil {
		switch of := meta.(type) {
		case *compute.CreateDiskMetadata:
			return of.GetDiskId(), nil
		case *compute.CreateSnapshotMetadata:
			return of.GetSnapshotId(), nil
		}
	}
	return "", fmt.Errorf("operation %s does not say what it makes: %w", op.GetId(), fault.Uncertain)
}

// mostChains bounds what is remembered of creates.
const mostChains = 1 << 14

// chains remember which keys of a name are used up, which operations were answered before, what was answered for a
// name, and what callers have deleted. It saves requests: another process finds them anew.
type chains struct {
	mu   sync.Mutex
	all  map[string]string
	seen map[string]bool
	made map[string]string
	gone map[string]bool
}

// making notes the id that a request for a snapshot is answered with.
func (c *chains) making(request, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil || len(c.made) >= mostChains {
		c.made = map[string]string{}
	}
	c.made[request] = id
}

// madeAs is the id that a request for a snapshot was answered with, or "".
func (c *chains) madeAs(request string) (id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made[request]
}

// delete notes that a caller has deleted a snapshot: its name is free again.
func (c *chains) delete(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == nil || len(c.gone) >= mostChains {
		c.gone = map[string]bool{}
	}
	c.gone[id] = true
	maps.DeleteFunc(c.made, func(_, made string) bool { return made == id })
}

func (c *chains) deleted(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone[id]
}

func (c *chains) of(what, request string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[what+" "+request]
}

func (c *chains) keep(what, request, chain string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil || len(c.all) >= mostChains {
		c.all = map[string]string{}
	}
	c.all[what+" "+request] = chain
}

// saw notes an operation and reports whether it was known.
func (c *chains) saw(operation string) (known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known = c.seen[operation]; known {
		return true
	}
	if c.seen == nil || len(c.seen) >= mostChains {
		c.seen = map[string]bool{}
	}
	c.seen[operation] = true
	return false
}
