package yandex

import (
	"context"
	"fmt"
	"sync"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// maxKeys is how many idempotency keys one call tries before it creates without one.
const maxKeys = 8

// creation is a create as the cloud answered it.
type creation struct {
	// id is of what is made, and operation of what makes it.
	id, operation string
	// over: the operation had ended with the answer, so it may be that of an earlier call. failure is its error.
	over    bool
	failure error
}

// keyed is a create under an idempotency key.
type keyed struct {
	// name and kind are the Op's, what and request are what the key follows from.
	name, kind, what, request string
	// wait: the call returns when the operation has ended.
	wait bool
	send func(ctx context.Context, w *ops.Write) (*operation.Operation, error)
	// remains reports whether there is what an operation made that was over with the answer. It removes what a
	// failed one has left.
	remains func(ctx context.Context, made creation) (bool, error)
}

// create sends a create. A key that the cloud knows is answered with the operation that it began once, whatever became
// of that: one that runs is joined, and what one has made is the answer. Where it failed, or what it made is gone, the
// key is used up, and the next one follows from that operation, so that every controller finds the same. An error may
// come with the id of what the failed operation was to make.
func (c *Cloud) create(ctx context.Context, k keyed) (id string, err error) {
	key := c.idempotencyKey(k.what, k.request, "")
	for n := 0; ; n++ {
		made, err := ops.Run(ctx, c.ops, ops.Op[creation]{
			Name: k.name, Kind: k.kind, Object: "create " + k.what + " " + k.request, Priority: budget.Write, Key: key,
			Submit: k.submit,
		})
		known := c.answered.add(made.operation)
		if err != nil || !made.over {
			return made.id, err
		}
		there, err := k.remains(ctx, made)
		switch {
		case there && known:
			return "", fmt.Errorf("%s: an earlier call has made %s for it: %w", k.name, made.id, fault.Conflict)
		case err != nil || there:
			return made.id, about(err, "%s", k.name)
		case n == maxKeys && made.failure != nil:
			return "", about(made.failure, "%s", k.name)
		case n == maxKeys:
			return "", fmt.Errorf("%s: what earlier calls made for it was removed: %w", k.name, fault.Unavailable)
		}
		if key = c.idempotencyKey(k.what, k.request, made.operation); n == maxKeys-1 {
			key = ""
		}
	}
}

func (k keyed) submit(ctx context.Context, w *ops.Write) (made creation, operation string, err error) {
	op, err := k.send(ctx, w)
	if made.operation, err = started(op, err); err != nil {
		return made, "", err
	}
	if made.id, err = createdBy(op); err != nil {
		return made, "", err
	}
	if made.over, made.failure = op.GetDone(), failureOf(op); made.over || !k.wait {
		return made, "", nil
	}
	return made, made.operation, nil
}

// createdBy is the id of what a create makes, which is known at once.
func createdBy(op *operation.Operation) (id string, err error) {
	if meta, err := op.GetMetadata().UnmarshalNew(); err == nil {
		switch of := meta.(type) {
		case *compute.CreateDiskMetadata:
			id = of.GetDiskId()
		case *compute.CreateSnapshotMetadata:
			id = of.GetSnapshotId()
		}
	}
	if !objectID(id) {
		return "", fmt.Errorf("operation %s does not say what it makes: %w", op.GetId(), fault.Uncertain)
	}
	return id, nil
}

// failedWith reports whether an error is that of an operation which ended without having done it.
func failedWith(err error) bool {
	a := answerOf(err)
	return a != nil && a.operation != "" && fault.Of(err) != fault.Uncertain
}

// ids remembers what this process has seen. It saves requests, and says what a repeat has to be answered with.
type ids struct {
	mu  sync.Mutex
	all map[string]bool
}

// maxIDs bounds what is remembered.
const maxIDs = 1 << 14

// add reports whether an id was there already.
func (s *ids) add(id string) (known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known = s.all[id]
	if s.all == nil || len(s.all) >= maxIDs {
		s.all = map[string]bool{}
	}
	s.all[id] = true
	return known
}

func (s *ids) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[id]
}
