package yandex

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strconv"
	"time"

	operationpb "github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rpc"
)

// This file is the changes: what the owner sees of each, and the operations, which run on after their answer.

// The kinds of operations.
const (
	kindCreate         = "create"
	kindDelete         = "delete"
	kindAttach         = "attach"
	kindDetach         = "detach"
	kindResize         = "resize"
	kindUpdate         = "update"
	kindSnapshot       = "snapshot"
	kindDeleteSnapshot = "delete_snapshot"
	kindRelocate       = "relocate"
)

// How operations stand.
const (
	outcomeRunning = "running"
	outcomeDone    = "done"
	outcomeFailed  = "failed"
)

// Operation is a change that the folder accepted, by the wall clock.
type Operation struct {
	// Kind is create, delete, attach, detach, resize, update, snapshot, delete_snapshot or relocate.
	Kind     string `json:"kind"`
	ID       string `json:"id"`
	Disk     string `json:"disk,omitempty"`
	DiskName string `json:"disk_name,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`
	Instance string `json:"instance,omitempty"`
	// Accepted and Finished; the second is zero while the operation is running.
	Accepted time.Time `json:"accepted"`
	Finished time.Time `json:"finished,omitzero"`
	// Status is running, done or failed; Error is why it failed.
	Status string `json:"status"`
	Error  string `json:"error,omitempty"`
}

// Violation is something that must not have happened.
type Violation struct {
	At       time.Time `json:"at"`
	What     string    `json:"what"`
	Disk     string    `json:"disk"`
	DiskName string    `json:"disk_name"`
	Instance string    `json:"instance,omitempty"`
}

// job is a change that was asked for and may be made, and then the operation that makes it.
type job struct {
	kind, description string
	// disk, snapshot and instance that it is about, and the disk's name.
	disk, snapshot, instance, name string
	metadata                       proto.Message
	lasts                          clock.Span
	// claims are the ids of what takes one operation at a time.
	claims []string
	// accept makes what shows at once, early what shows halfway where that is the rule; nil: nothing. finish makes the
	// rest and returns the operation's response; fail undoes what shows.
	accept func() error
	early  func()
	finish func() proto.Message
	fail   func()
	// fails is why it will fail, if it will.
	fails *refusal

	id     string
	number int // in the record
}

type usedKey struct {
	operation string
	at        time.Time
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// change serves a call that starts an operation: plan says what it would do, or why it may not, and changes
// nothing.
func (c *Cloud) change(ctx context.Context, plan func() (*job, *refusal)) (*operationpb.Operation, error) {
	call := rpc.From(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	key := firstOf(call.Header, "idempotency-key")
	if key != "" {
		if !uuid.MatchString(key) {
			return nil, c.refuse(badArgument.with("idempotency-key: must be a UUID"))
		}
		if known := c.repeated(key); known != "" {
			return showOperation(c.now.operations[known]), nil
		}
	}
	j, why := plan()
	if why == nil {
		why = c.mayStart(j)
	}
	if why != nil {
		return nil, c.refuse(why)
	}
	if j.accept != nil {
		if err := j.accept(); err != nil {
			return nil, c.refuse(&refusal{code: failedInside.code, text: "emulator: " + err.Error()})
		}
	}
	started := c.start(j, call)
	if key != "" {
		c.keys[key] = usedKey{j.id, c.clock.Now()}
	}
	return started, nil
}

// onAccept is the accept of a change that shows at once where that is the rule.
func (c *Cloud) onAccept(show func()) func() error {
	return func() error {
		if c.rules.ChangeOnAccept {
			show()
		}
		return nil
	}
}

// repeated returns the operation that a key stands for, whatever became of it.
func (c *Cloud) repeated(key string) (operation string) {
	used, known := c.keys[key]
	forgotten := cmp.Or(c.rules.KeysForgottenAfter.Least, operationsKept)
	if !known || c.clock.Now().Sub(used.at) >= forgotten {
		return ""
	}
	return used.operation
}

// mayStart says why an operation cannot run beside those that do.
func (c *Cloud) mayStart(j *job) *refusal {
	for _, id := range j.claims {
		_, isInstance := c.now.instances[id]
		for _, other := range c.running {
			switch {
			case !slices.Contains(other.claims, id):
			case !isInstance:
				return busyDisk.with(id)
			case !c.rules.ParallelOperations:
				return busyInstance.with(id)
			}
		}
	}
	if len(c.running) >= cmp.Or(c.rules.ActiveOperations, usualActiveOperations) {
		return &tooManyOperations
	}
	return nil
}

// start begins an operation and returns how it stands then.
func (c *Cloud) start(j *job, call *rpc.Call) *operationpb.Operation {
	c.numbers++
	now := c.clock.Now()
	j.id = c.newID(c.prefix(j), "operation", j.name)
	about, err := anypb.New(j.metadata)
	c.trouble(j.disk, err)
	c.putOperation(operation{
		id: j.id, number: c.numbers, description: j.description, disk: j.disk, snap: j.snapshot, onto: j.instance,
		moves: j.kind == kindAttach || j.kind == kindDetach, created: now, modified: now, metadata: about,
	})
	if call.Effect.Errored {
		why := failedInside
		if call.Effect.Message != "" {
			why.text = call.Effect.Message
		}
		why.code = namedCode(call.Effect.ID, why.code)
		j.fails = &why
	}
	if c.rules.FreshNotFound > 0 {
		c.unseen[j.id] = c.rules.FreshNotFound
	}
	j.number = c.begin(Operation{
		Kind: j.kind, ID: j.id, Disk: j.disk, DiskName: j.name, Snapshot: j.snapshot, Instance: j.instance,
	})
	c.running[j.id] = j
	c.countParallel(j)
	shown := showOperation(c.now.operations[j.id])
	lasts := c.dice.Lasting(j.kind, j.name, j.lasts, call.Effect)
	if lasts != 0 {
		if c.rules.ChangeHalfway && j.early != nil {
			c.later.After(lasts/2, func() { c.showEarly(j) })
		}
		c.later.After(lasts, func() { c.finish(j) })
		return shown
	}
	c.finish(j)
	if c.rules.ArrivesDone {
		shown = showOperation(c.now.operations[j.id])
	}
	return shown
}

// prefix of an operation's id, as that of what it is about.
func (c *Cloud) prefix(j *job) string {
	const usual = 3
	for _, id := range []string{j.disk, j.instance, j.snapshot} {
		if len(id) > usual {
			return id[:usual]
		}
	}
	return snapshotPrefix
}

// showEarly shows the change of an operation that is still running.
func (c *Cloud) showEarly(j *job) {
	if c.running[j.id] == j {
		j.early()
	}
}

// finish ends an operation, unless it was ended before.
func (c *Cloud) finish(j *job) {
	if c.running[j.id] != j {
		return
	}
	if j.fails != nil {
		c.failOperation(j, c.worded(*j.fails), c.rules.Rollback.Least)
		return
	}
	delete(c.running, j.id)
	response, err := anypb.New(j.finish())
	c.trouble(j.disk, err)
	o := c.now.operations[j.id]
	o.done, o.modified, o.response = true, c.clock.Now(), response
	c.putOperation(o)
	c.end(j.number, outcomeDone, "")
}

// failOperation shows why an operation failed. It is done when the rollback is.
func (c *Cloud) failOperation(j *job, why refusal, rollback time.Duration) {
	o := c.now.operations[j.id]
	o.failure, o.modified = &spb.Status{Code: int32(why.code), Message: why.text}, c.clock.Now()
	c.putOperation(o)
	c.later.After(rollback, func() {
		if c.running[j.id] != j {
			return
		}
		delete(c.running, j.id)
		if j.fail != nil {
			j.fail()
		}
		ended := c.now.operations[j.id]
		ended.done, ended.modified = true, c.clock.Now()
		c.putOperation(ended)
		c.end(j.number, outcomeFailed, why.text)
	})
}

// replicaLag bounds how long a new operation may be unknown to a replica.
const replicaLag = 5 * time.Second

// operationsKept is how long the cloud has the records of operations.
const operationsKept = 14 * 24 * time.Hour

func (c *Cloud) expired(o operation) bool {
	return o.done && c.clock.Now().Sub(o.created) > operationsKept
}

type operationService struct {
	operationpb.UnimplementedOperationServiceServer
	c *Cloud
}

// Get shows an operation, once it can be found.
func (s operationService) Get(ctx context.Context, ask *operationpb.GetOperationRequest) (*operationpb.Operation, error) {
	c, call := s.c, rpc.From(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := checkID("operation_id", ask.GetOperationId()); why != nil {
		return nil, c.refuse(why)
	}
	o, found := c.view(call.Effect).operations[ask.GetOperationId()]
	if c.unseen[ask.GetOperationId()] > 0 && c.clock.Now().Sub(o.created) < replicaLag {
		c.unseen[ask.GetOperationId()]--
		found = false
	}
	if !found || c.expired(o) {
		return nil, c.refuse(noOperation.with(ask.GetOperationId()))
	}
	if c.rules.PollInterval > 0 {
		header := metadata.Pairs("x-operation-poll-interval", strconv.Itoa(c.rules.PollInterval))
		if err := grpc.SetHeader(ctx, header); err != nil {
			return nil, err
		}
	}
	return showOperation(o), nil
}

// begin remembers an operation that was accepted and returns its number.
func (c *Cloud) begin(op Operation) int {
	op.Accepted, op.Status = time.Now(), outcomeRunning
	return c.record.Add(op)
}

func (c *Cloud) end(number int, status, why string) {
	c.record.Change(number, func(op *Operation) { op.Finished, op.Status, op.Error = time.Now(), status, why })
}

// countParallel remembers how many operations run now that another one does.
func (c *Cloud) countParallel(j *job) {
	c.record.Parallel(c.Folder, len(c.running))
	if j.instance != "" {
		c.record.Parallel(j.instance, account.Count(c.running, func(other *job) bool { return other.instance == j.instance }))
	}
}

func (c *Cloud) violation(what string, d disk) {
	c.record.Violate(Violation{At: time.Now(), What: what, Disk: d.ID, DiskName: d.Name, Instance: d.Instance})
}

// trouble records that the machine did not do what the cloud wanted of it: the test's ground is gone.
func (c *Cloud) trouble(disk string, err error) {
	if err != nil {
		d := c.now.disks[disk]
		d.ID = disk
		c.violation("emulator: "+err.Error(), d)
	}
}
