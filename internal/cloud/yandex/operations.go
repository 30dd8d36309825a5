package yandex

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// A watch is what is looked at until an operation has ended: the operation, and the disk whose state shows
// the same, so that one list of the folder's disks answers for many.
type watch struct {
	operation string
	// disk is empty where only the operation shows its end.
	disk cloud.VolumeID
	// snapshot is looked at in place of an operation that is not known.
	snapshot cloud.SnapshotID
	// name is set while a disk is made: others of that name are looked for too.
	name string
	// grows: what is waited for stays true when it is true once, so an old list can only make it late.
	grows bool
}

// A sight is what a look has found.
type sight struct {
	// disk is the disk as it is now; nil: it was not looked at, or is gone.
	disk     *compute.Disk
	snapshot *compute.Snapshot
	gone     bool
	// twins are the other disks of its name.
	twins []*compute.Disk
	// operation is nil where the disk was looked at and not the operation.
	operation *operation.Operation
}

// A change is an operation that the cloud has taken on.
type change struct {
	watch

	kind  poll.Kind
	began time.Time // zero: found running
}

// await returns when the operation has ended in success, or when shows sees what it was for. An operation
// that has failed has changed nothing that is known of, so the next call may send it again.
func (c *Cloud) await(ctx context.Context, ch change, shows func(sight) bool) (sight, error) {
	defer c.paces.forget(ch.operation)
	seen, err := c.ends.Wait(ctx, poll.Operation[watch]{Key: ch.watch, Kind: ch.kind, Began: ch.began}, func(s sight) (bool, error) {
		if !s.operation.GetDone() { // an error may show before the end: what was begun is being taken back then
			return shows != nil && shows(s), nil
		}
		return true, failureOf(s.operation)
	})
	if err != nil {
		return seen, fmt.Errorf("operation %s (%s): %w", ch.operation, ch.kind, err)
	}
	return seen, nil
}

// failureOf is the error of an operation that has ended, or nil.
func failureOf(op *operation.Operation) error {
	if op.GetError() == nil {
		return nil
	}
	a := newAnswer(status.FromProto(op.GetError()))
	a.operation = op.GetId()
	return fmt.Errorf("%w: %w", kindOf(a), a)
}

// lookPriority is that of looks at operations. Until one is seen to have ended its machine is held, also for
// a detach that waits for its turn; and one look answers everybody.
const lookPriority = budget.Detach

// lookAtMany answers for all disks with one list of the folder. Operations without a disk are looked at by
// themselves, and so is everything where the list would take more requests.
func (c *Cloud) lookAtMany(ctx context.Context, keys []watch) (map[watch]sight, error) {
	if int(c.count.Load()) > perPage*len(keys) {
		return nil, nil
	}
	facts := make(map[cloud.VolumeID]fact, len(keys)) // as they are before the list
	for _, key := range keys {
		facts[key.disk], _ = c.known.of(key.disk)
	}
	all, err := c.allDisks(ctx, lookPriority)
	if err != nil {
		return nil, err
	}
	byID := make(map[cloud.VolumeID]*compute.Disk, len(all))
	byName := make(map[string][]*compute.Disk, len(all))
	var newest time.Time // of the disks, by the cloud's own clock
	for _, d := range all {
		if made := d.GetCreatedAt().AsTime(); made.After(newest) {
			newest = made
		}
		byID[idOf(d)] = d
		byName[d.GetName()] = append(byName[d.GetName()], d)
	}
	young := c.known.youngerThan(all)
	found := make(map[watch]sight, len(keys))
	for _, key := range keys {
		d := byID[key.disk]
		f := facts[key.disk]
		certain := func(since time.Time) bool { return !since.IsZero() && !young.Before(since) }
		switch {
		case key.disk == "", d == nil && key.grows:
			// A disk that is being made and not on the list may have failed: only the operation tells.
		case d == nil && (certain(f.ready) || !f.created.IsZero() && newest.After(f.created)):
			found[key] = sight{gone: true}
		case d != nil && (key.grows || certain(f.settled)):
			found[key] = sight{disk: d, twins: others(byName[key.name], key.disk)}
		default:
			// The list may be older than the change before this one: only the operation is certain.
		}
	}
	return found, nil
}

// others returns the disks without the one.
func others(disks []*compute.Disk, but cloud.VolumeID) (twins []*compute.Disk) {
	for _, d := range disks {
		if idOf(d) != but {
			twins = append(twins, d)
		}
	}
	return twins
}

// lookAtOne looks at one operation. Of a disk that is being made the disk is looked at first: a list by its
// name shows that it is ready, and others of that name with it.
func (c *Cloud) lookAtOne(ctx context.Context, key watch) (s sight, err error) {
	ctx = budget.WithPriority(ctx, lookPriority)
	switch {
	case key.name != "":
		same, err := c.named(ctx, key.name)
		if err != nil {
			return s, err
		}
		s.twins = others(same, key.disk)
		for _, d := range same {
			if idOf(d) == key.disk {
				s.disk = d
			}
		}
		if s.disk.GetStatus() == compute.Disk_READY {
			return s, nil
		}
	case key.snapshot != "":
		s.snapshot, err = c.snapshot(ctx, key.snapshot)
		return s, err
	case key.operation == "":
		s.disk, err = c.look(ctx, key.disk)
		s.gone = s.disk == nil
		return s, err
	}
	s.operation, err = c.operation(ctx, key.operation)
	return s, err
}

const (
	// mostMissing is how often an operation may be unknown right after its begin: reads may come from a copy
	// that lags behind.
	mostMissing = 3
	// mostPace bounds what the cloud may ask for between two looks at an operation.
	mostPace = 10 * time.Second
)

// paces are what the cloud has said about looks at operations that are running.
type paces struct {
	mu  sync.Mutex
	all map[string]pace
}

type pace struct {
	next    time.Time // not before then
	missing int
}

func (p *paces) of(id string) pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[id]
}

func (p *paces) set(id string, now pace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string]pace{}
	}
	p.all[id] = now
}

func (p *paces) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, id)
}

// operation looks at one operation, not more often than the cloud wants to be asked. One that is not known
// yet is running.
func (c *Cloud) operation(ctx context.Context, id string) (*operation.Operation, error) {
	now := c.paces.of(id)
	if wait := time.Until(now.next); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("look at operation %s: %w: %w", id, fault.Unavailable, ctx.Err())
		}
	}
	var header metadata.MD
	op, err := c.operations.Get(ctx, &operation.GetOperationRequest{OperationId: id}, grpc.Header(&header))
	if a := answerOf(err); a != nil && a.code == codes.NotFound && now.missing < mostMissing {
		now.missing++
		c.paces.set(id, now)
		return &operation.Operation{Id: id}, nil
	}
	if err != nil {
		return nil, readError("look at operation "+id, err)
	}
	if !op.GetDone() {
		now.next = time.Now().Add(intervalOf(header))
		c.paces.set(id, now)
	}
	return op, nil
}

// intervalOf is how long the cloud wants not to be asked again.
func intervalOf(header metadata.MD) time.Duration {
	values := header.Get("x-operation-poll-interval")
	if len(values) == 0 {
		return 0
	}
	seconds, err := strconv.ParseFloat(values[0], 64)
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds*float64(time.Second)), mostPace)
}

// join waits for what is under way with a disk already, or with the machine if one is named, by a call before
// this one, another controller or a person. It reports whether there was anything. How it ended is for a look
// at the state to say; that it has ended is certain when there is no error.
func (c *Cloud) join(ctx context.Context, id cloud.VolumeID, machine string) (joined bool, err error) {
	ctx = budget.WithPriority(ctx, budget.Read)
	running, err := c.runningOnDisk(ctx, id)
	if err != nil {
		return false, err
	}
	if machine != "" {
		more, err := c.runningOnMachine(ctx, machine)
		if err != nil {
			return false, err
		}
		running = append(running, more...)
	}
	for _, op := range running {
		_, err := c.await(ctx, change{watch: watch{operation: op}, kind: kindOther}, nil)
		if err != nil && !hasFailed(err) && fault.Of(err) != fault.NotFound {
			return true, fmt.Errorf("disk %s: wait for what is under way with it: %w", id, err)
		}
	}
	return len(running) > 0, nil
}

// runningOnDisk returns the operations of a disk that have not ended. A disk that does not exist has none.
func (c *Cloud) runningOnDisk(ctx context.Context, id cloud.VolumeID) ([]string, error) {
	return running("disk "+string(id), func(token string) ([]*operation.Operation, string, error) {
		list, err := c.disks.ListOperations(ctx, &compute.ListDiskOperationsRequest{DiskId: string(id), PageSize: perPage, PageToken: token})
		return list.GetOperations(), list.GetNextPageToken(), err
	})
}

// runningOnMachine is the same for a machine. What attaches and detaches is its operation.
func (c *Cloud) runningOnMachine(ctx context.Context, id string) ([]string, error) {
	return running("machine "+id, func(token string) ([]*operation.Operation, string, error) {
		list, err := c.machines.ListOperations(ctx, &compute.ListInstanceOperationsRequest{InstanceId: id, PageSize: perPage, PageToken: token})
		return list.GetOperations(), list.GetNextPageToken(), err
	})
}

func running(of string, read func(token string) ([]*operation.Operation, string, error)) (ids []string, err error) {
	for token := ""; ; {
		page, next, err := read(token)
		if a := answerOf(err); a != nil && a.code == codes.NotFound {
			return nil, nil
		}
		if err != nil {
			return nil, readError("look at the operations of "+of, err)
		}
		for _, op := range page {
			if !op.GetDone() {
				ids = append(ids, op.GetId())
			}
		}
		if token = next; token == "" {
			return ids, nil
		}
	}
}
