package yandex

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// maxInterval is the maximum time between two reads of an operation, whatever the cloud asks for.
	maxInterval = 10 * time.Second
	// The list of an object's operations goes back two weeks, and each entry contains the whole object. Its order is not documented. If
	// it is newest first, no page is read after one with an operation older than recentOperation. A relocation may be older, but it is on
	// the first page, because the disk has no other operations meanwhile.
	operationsPerPage, maxOperationPages = 50, 20
	recentOperation                      = time.Hour
)

// The names of objects in ops.
const (
	prefixDisk     = "disk "
	prefixInstance = "instance "
	prefixSnapshot = "snapshot "
)

func diskKey(id cloud.VolumeID) string       { return prefixDisk + string(id) }
func snapshotKey(id cloud.SnapshotID) string { return prefixSnapshot + string(id) }

// tracker follows operations by their ids.
type tracker struct{ c *Cloud }

// Outcome reads an operation.
func (t tracker) Outcome(ctx context.Context, op ops.Operation) (ops.Outcome, error) {
	var header metadata.MD
	now, err := t.c.operations.Get(ctx, &operation.GetOperationRequest{OperationId: op.ID}, priority(budget.Track), grpc.Header(&header))
	err = wrap(err, "read operation %s", op.ID)
	switch {
	case err != nil:
		return ops.Outcome{}, err
	case now.GetId() != op.ID:
		return ops.Outcome{}, fmt.Errorf("read operation %s: %w: the answer is about something else", op.ID, fault.Unavailable)
	case !now.GetDone(): // an error may show before the end: what was begun is being taken back then
		return ops.Outcome{Again: cmp.Or(intervalOf(header), t.c.interval)}, nil
	}
	return ops.Outcome{Done: true, Err: failureOf(now), Took: durationOf(now)}, nil
}

// durationOf returns how long an operation took by the cloud's own times; 0: it does not show both, as those of some services do not.
func durationOf(op *operation.Operation) time.Duration {
	if op.GetCreatedAt() == nil || op.GetModifiedAt() == nil {
		return 0
	}
	return max(0, op.GetModifiedAt().AsTime().Sub(op.GetCreatedAt().AsTime()))
}

// intervalOf returns the time that the cloud asks to wait before the next read; 0: none.
func intervalOf(header metadata.MD) time.Duration {
	values := header.Get("x-operation-poll-interval")
	if len(values) == 0 {
		return 0
	}
	seconds, err := strconv.ParseFloat(values[0], 64)
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, maxInterval.Seconds()) * float64(time.Second))
}

// Running returns the operations of an object that have not ended.
func (t tracker) Running(ctx context.Context, object string) ([]ops.Operation, error) {
	var running []ops.Operation
	token := ""
	for range maxOperationPages {
		page, next, err := t.list(ctx, object, token)
		if saysNone(err) {
			return nil, nil
		}
		if err != nil {
			return nil, wrap(err, "read the operations of %s", object)
		}
		for _, op := range page {
			if !op.GetDone() && !ofSnapshot(op, object) {
				running = append(running, ops.Operation{Object: object, ID: op.GetId()})
			}
		}
		if token = next; token == "" || onlyOlder(page) {
			break
		}
	}
	return running, nil
}

// onlyOlder reports whether the pages behind a page have only operations that began long ago.
func onlyOlder(page []*operation.Operation) bool {
	began := func(op *operation.Operation) time.Time { return op.GetCreatedAt().AsTime() }
	newestFirst := slices.IsSortedFunc(page, func(a, b *operation.Operation) int { return began(b).Compare(began(a)) })
	return newestFirst && (len(page) == 0 || time.Since(began(page[len(page)-1])) >= recentOperation)
}

// ofSnapshot reports whether an operation of a disk makes a snapshot of it. That may take hours, and changes nothing of the disk.
func ofSnapshot(op *operation.Operation, object string) bool {
	return strings.HasPrefix(object, prefixDisk) && op.GetMetadata().MessageIs((*compute.CreateSnapshotMetadata)(nil))
}

func (t tracker) list(ctx context.Context, object, token string) ([]*operation.Operation, string, error) {
	kind, id, _ := strings.Cut(object, " ")
	switch kind + " " {
	case prefixDisk:
		l, err := t.c.disks.ListOperations(ctx, &compute.ListDiskOperationsRequest{DiskId: id, PageSize: operationsPerPage, PageToken: token})
		return l.GetOperations(), l.GetNextPageToken(), err
	case prefixInstance:
		l, err := t.c.instances.ListOperations(ctx, &compute.ListInstanceOperationsRequest{InstanceId: id, PageSize: operationsPerPage, PageToken: token})
		return l.GetOperations(), l.GetNextPageToken(), err
	case prefixSnapshot:
		l, err := t.c.snapshots.ListOperations(ctx, &compute.ListSnapshotOperationsRequest{SnapshotId: id, PageSize: operationsPerPage, PageToken: token})
		return l.GetOperations(), l.GetNextPageToken(), err
	}
	return nil, "", nil // a name, of what is being made
}

// started returns the operation in the answer to a write.
func started(op *operation.Operation, err error) (string, error) {
	if err == nil && op.GetId() == "" {
		err = fmt.Errorf("%w: the cloud's answer names no operation", fault.Uncertain)
	}
	return op.GetId(), err
}
