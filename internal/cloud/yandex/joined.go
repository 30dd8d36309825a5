package yandex

import (
	"context"
	"fmt"
	"sync"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// join waits for what is under way with a disk already, or with the machine if one is named, by a call before
// this one, another controller or a person. It reports whether there was anything. How it ended is for a look
// at the state to say; that it has ended is certain when there is no error.
func (c *Cloud) join(ctx context.Context, id cloud.VolumeID, machine string) (joined bool, err error) {
	ctx = budget.WithPriority(ctx, budget.Read)
	all, err := c.operationsOfDisk(ctx, id)
	if err != nil {
		return false, err
	}
	if machine != "" {
		more, err := c.operationsOfMachine(ctx, machine)
		if err != nil {
			return false, err
		}
		all = append(all, more...)
	}
	for _, op := range all {
		if op.GetDone() {
			continue
		}
		joined = true
		_, err := c.await(ctx, change{watch: watch{operation: op.GetId(), kind: kindOther}}, nil)
		if err != nil && !hasFailed(err) && fault.Of(err) != fault.NotFound {
			return true, fmt.Errorf("disk %s: wait for what is under way with it: %w", id, err)
		}
	}
	return joined, nil
}

// operationsOfDisk returns the operations of a disk. A disk that does not exist has none.
func (c *Cloud) operationsOfDisk(ctx context.Context, id cloud.VolumeID) ([]*operation.Operation, error) {
	return c.operationsOf("disk "+string(id), func(token string) ([]*operation.Operation, string, error) {
		list, err := c.disks.ListOperations(ctx, &compute.ListDiskOperationsRequest{DiskId: string(id), PageSize: perPage, PageToken: token})
		return list.GetOperations(), list.GetNextPageToken(), err
	})
}

// operationsOfMachine is the same for a machine. What attaches and detaches is its operation.
func (c *Cloud) operationsOfMachine(ctx context.Context, id string) ([]*operation.Operation, error) {
	return c.operationsOf("machine "+id, func(token string) ([]*operation.Operation, string, error) {
		list, err := c.machines.ListOperations(ctx, &compute.ListInstanceOperationsRequest{InstanceId: id, PageSize: perPage, PageToken: token})
		return list.GetOperations(), list.GetNextPageToken(), err
	})
}

func (c *Cloud) operationsOf(what string, read func(token string) ([]*operation.Operation, string, error)) (all []*operation.Operation, err error) {
	for token := ""; ; {
		page, next, err := read(token)
		if a := answerOf(err); a != nil && a.code == codes.NotFound {
			return nil, nil
		}
		if err != nil {
			return nil, readError("look at the operations of "+what, err)
		}
		all = append(all, page...)
		if token = next; token == "" {
			c.learn(all)
			return all, nil
		}
	}
}

// longestRecall bounds how long the cloud's records are waited for, mostRecalled how many are read.
const (
	longestRecall = 10 * time.Second
	mostRecalled  = 100
)

// recalls are the kinds of which the cloud's records have been asked how long they take.
type recalls struct {
	mu    sync.Mutex
	kinds map[poll.Kind]bool
}

// claim reports whether nobody has asked about the kind.
func (r *recalls) claim(kind poll.Kind) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds[kind] {
		return false
	}
	if r.kinds == nil {
		r.kinds = map[poll.Kind]bool{}
	}
	r.kinds[kind] = true
	return true
}

// recall asks the cloud how long the operations took that a disk or its machine had before, once for each kind that
// this process has not waited for yet: after a restart nobody has to wait until it is learnt. It goes on beside the
// wait for an operation. A disk that was made a moment ago has no such records.
func (c *Cloud) recall(key watch) {
	if f, _ := c.known.of(key.disk); key.disk == "" || key.name != "" || !f.made.IsZero() || c.ends.Known(key.kind) || !c.recalls.claim(key.kind) {
		return
	}
	life := c.work.Life()
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(budget.WithPriority(life, budget.Read), longestRecall)
		defer cancel()
		// Without an answer there are a few looks more.
		if key.machine != "" {
			list, _ := c.machines.ListOperations(ctx, &compute.ListInstanceOperationsRequest{InstanceId: key.machine, PageSize: mostRecalled})
			c.learn(list.GetOperations())
			return
		}
		list, _ := c.disks.ListOperations(ctx, &compute.ListDiskOperationsRequest{DiskId: string(key.disk), PageSize: mostRecalled})
		c.learn(list.GetOperations())
	})
}

// learn takes in how long operations took at least.
func (c *Cloud) learn(all []*operation.Operation) {
	least := map[poll.Kind]time.Duration{}
	for _, op := range all {
		kind, took := lasted(op)
		if before, has := least[kind]; took > 0 && (!has || took < before) {
			least[kind] = took
		}
	}
	for kind, took := range least {
		c.ends.Tell(kind, took)
	}
}

// lasted is how long an operation took at least, by the cloud's own clock; 0: that cannot be told.
func lasted(op *operation.Operation) (poll.Kind, time.Duration) {
	about, began, ended := op.GetMetadata(), op.GetCreatedAt(), op.GetModifiedAt()
	if !op.GetDone() || op.GetError() != nil || began == nil || ended == nil {
		return "", 0
	}
	took := ended.AsTime().Sub(began.AsTime())
	if began.GetNanos() == 0 && ended.GetNanos() == 0 {
		took -= time.Second // they are cut to whole seconds
	}
	switch {
	case about.MessageIs(&compute.AttachInstanceDiskMetadata{}):
		return kindAttach, took
	case about.MessageIs(&compute.DetachInstanceDiskMetadata{}):
		return kindDetach, took
	case about.MessageIs(&compute.UpdateDiskMetadata{}):
		return kindLabel, took
	default:
		return "", 0
	}
}
