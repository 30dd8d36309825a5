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
	kind  poll.Kind
	// taken is when the cloud had taken on the operation of an attach or detach; zero: it was found running.
	taken time.Time
	// machine is the one that the disk is attached to or detached from, and since when the state before that was
	// known for certain; zero: it was not.
	machine string
	since   time.Time
}

// under reports whether a disk shows that what is waited for is not there yet. That is harmless to believe.
func (w watch) under(d *compute.Disk) bool {
	switch w.kind {
	case kindCreate, kindRestore:
		return d.GetStatus() == compute.Disk_CREATING
	case kindAttach:
		return !attachedTo(d, w.machine)
	case kindDetach:
		return attachedTo(d, w.machine)
	default:
		return w.kind == kindDelete
	}
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
	// at is when the look was answered: what it shows is not younger.
	at time.Time
}

// A change is an operation that the cloud has taken on.
type change struct {
	watch

	began time.Time // zero: found running
}

// await returns when the operation has ended in success, or when shows sees what it was for. An operation
// that has failed has changed nothing that is known of, so the next call may send it again.
func (c *Cloud) await(ctx context.Context, ch change, shows func(sight) bool) (sight, error) {
	defer c.paces.forget(ch.operation)
	defer c.manners.forget(ch.operation)
	c.recall(ch.watch)
	seen, err := c.ends.Wait(ctx, poll.Operation[watch]{Key: ch.watch, Kind: ch.kind, Began: ch.began}, func(s sight) (bool, error) {
		switch {
		case s.operation.GetDone():
			return true, failureOf(s.operation)
		case s.operation != nil: // an error may show before the end: what was begun is being taken back then
			return false, nil
		default:
			return shows != nil && shows(s), nil
		}
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
	known, asked := c.known.all(), time.Now() // as it is before the list
	all, err := c.allDisks(ctx, lookPriority)
	if err != nil {
		return nil, err
	}
	now, list := time.Now(), newListing(all, known, &c.clock)
	byName := make(map[string][]*compute.Disk, len(all))
	for _, d := range all {
		byName[d.GetName()] = append(byName[d.GetName()], d)
	}
	found := c.scout(ctx, keys, list, asked)
	for _, key := range keys {
		if _, scouted := found[key]; scouted {
			continue
		}
		d, f := list.disks[key.disk], known[key.disk]
		switch {
		case key.disk == "", d == nil && key.grows, key.kind == kindResize:
			// A disk that is being made and not on the list may have failed: only the operation tells. So it is
			// with a size, which may be taken back.
		case d != nil && key.under(d):
			found[key] = sight{disk: d, twins: others(byName[key.name], key.disk), at: now}
		case key.operation != "" && !c.manners.shown(key.kind):
		case d == nil && (list.since(f.ready) || list.lacks(key.disk)):
			found[key] = sight{gone: true, at: now}
		case d != nil && (key.grows || list.since(key.since)):
			found[key] = sight{disk: d, twins: others(byName[key.name], key.disk), at: now}
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

// lookAtOne looks at one operation. Of a disk that is being made a list by its name is needed at the end, for
// others of that name; where such a list shows the end too, it is all that is needed.
func (c *Cloud) lookAtOne(ctx context.Context, key watch) (sight, error) {
	return c.lookBeside(ctx, key, time.Time{})
}

// lookBeside is lookAtOne for an operation whose change did not show at a moment just before; zero: that is not known.
func (c *Cloud) lookBeside(ctx context.Context, key watch, hidden time.Time) (s sight, err error) {
	defer func() { s.at = time.Now() }()
	ctx = budget.WithPriority(ctx, lookPriority)
	switch {
	case key.name != "" && c.manners.shown(key.kind):
		if err := c.sameName(ctx, key, &s); err != nil || s.disk.GetStatus() == compute.Disk_READY {
			return s, err
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
	if err == nil {
		c.observe(ctx, key, s.operation, hidden)
	}
	if err == nil && key.name != "" && s.operation.GetDone() && s.operation.GetError() == nil {
		err = c.sameName(ctx, key, &s)
	}
	return s, err
}

// sameName looks for the disks with the name of one that is being made.
func (c *Cloud) sameName(ctx context.Context, key watch, s *sight) error {
	same, err := c.named(ctx, key.name)
	if err != nil {
		return err
	}
	s.twins = others(same, key.disk)
	for _, d := range same {
		if idOf(d) == key.disk {
			s.disk = d
		}
	}
	return nil
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
