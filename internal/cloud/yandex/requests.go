package yandex

import (
	"context"
	"fmt"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

var traits = block.Traits{
	VolumeWord: "disk", MachineWord: "instance",
	VolumeID: objectID[cloud.VolumeID], MachineID: objectID[cloud.NodeID], SnapshotID: objectID[cloud.SnapshotID],
	Zone:               zoneWord.MatchString,
	Largest:            maxDisk,
	DetachNamesMachine: true, KeepsAttached: true,
	MachineHasDisks: true,
	NoGrowthAttached: func(refusal error) bool {
		a := answerOf(refusal)
		return a != nil && a.says(textAttached)
	},
}

// Attach attaches a disk to an instance.
func (c *Cloud) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	device, err := c.Verbs.Attach(ctx, id, node)
	if err != nil {
		return cloud.Device{}, attachError(err)
	}
	return device, nil
}

// attachError returns fault.Exhausted only for the attach limit, for which the pod moves to another node: a quota of the folder applies
// to all nodes.
func attachError(err error) error {
	a := answerOf(err)
	if fault.Of(err) == fault.Exhausted && (a == nil || !a.says(textSlots)) {
		return fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	return err
}

// requests implements block.API.
type requests struct{ c *Cloud }

func (r requests) Volume(ctx context.Context, id cloud.VolumeID, p budget.Priority) (*block.Volume, error) {
	d, err := r.c.findDisk(ctx, id, p)
	if d == nil || err != nil {
		return nil, err
	}
	return r.c.stateOf(d), nil
}

// stateOf returns a disk as a block.Volume.
func (c *Cloud) stateOf(d *compute.Disk) *block.Volume {
	v := &block.Volume{Volume: c.volumeOf(d), Fit: func(size cloud.Bytes) (cloud.Bytes, error) {
		return fitted(size, 0, d.GetTypeId(), cloud.Bytes(d.GetBlockSize()))
	}}
	if d.GetStatus() != compute.Disk_READY {
		v.Hindered = notReady(d)
	}
	return v
}

// Find leaves several disks of a request to the operator, because each may have been returned before.
func (r requests) Find(ctx context.Context, request string) (*block.Volume, error) {
	same, err := r.c.disksNamed(ctx, r.c.cloudName(request))
	if err != nil {
		return nil, err
	}
	if ours := r.c.disksFor(request, same); len(ours) > 1 {
		return nil, fmt.Errorf("find volume %q: %w", request, errDuplicates(ours))
	}
	d, err := block.Find(request, same, func(d *compute.Disk) bool { return r.c.owner.MadeFor(request, d.GetLabels()) },
		func(d *compute.Disk) string { return "disk " + d.GetId() + " (see its labels)" })
	return r.c.stateOf(d), err
}

func (r requests) Machine(ctx context.Context, id cloud.NodeID) (*block.Machine, error) {
	instance, err := r.c.findInstance(ctx, string(id))
	if instance == nil || err != nil {
		return nil, err
	}
	m := &block.Machine{Zone: instance.GetZoneId(), Used: len(instance.GetSecondaryDisks()), Disks: map[cloud.VolumeID]block.Disk{}}
	switch status := instance.GetStatus(); status {
	case compute.Instance_RUNNING, compute.Instance_STOPPED, compute.Instance_STATUS_UNSPECIFIED:
	case compute.Instance_ERROR, compute.Instance_CRASHED:
		m.Hindered = fmt.Errorf("the instance is %s; stop it in the console, or delete it: %w", status, fault.Unavailable)
	default:
		m.Hindered = fmt.Errorf("the instance is %s: %w", status, fault.Unavailable)
	}
	for _, d := range instance.GetSecondaryDisks() {
		disk := block.Disk{ReadOnly: d.GetMode() == compute.AttachedDisk_READ_ONLY}
		if d.GetDeviceName() != "" { // the vendor's driver has names of its own
			disk.Device = deviceOf(d.GetDeviceName())
		}
		m.Disks[cloud.VolumeID(d.GetDiskId())] = disk
	}
	m.Disks[cloud.VolumeID(instance.GetBootDisk().GetDiskId())] = block.Disk{Boot: true}
	return m, nil
}

func (r requests) Attach(ctx context.Context, w *ops.Write, id cloud.VolumeID, to cloud.NodeID) (cloud.Device, string, error) {
	name := r.c.deviceName(id)
	op, err := started(r.c.instances.AttachDisk(ctx, &compute.AttachInstanceDiskRequest{
		InstanceId: string(to),
		AttachedDiskSpec: &compute.AttachedDiskSpec{
			Mode: compute.AttachedDiskSpec_READ_WRITE, DeviceName: name, Disk: &compute.AttachedDiskSpec_DiskId{DiskId: string(id)},
		},
	}, by(w)))
	return deviceOf(name), op, err
}

func (r requests) Detach(ctx context.Context, w *ops.Write, id cloud.VolumeID, from cloud.NodeID) (string, error) {
	return started(r.c.instances.DetachDisk(ctx, &compute.DetachInstanceDiskRequest{
		InstanceId: string(from), Disk: &compute.DetachInstanceDiskRequest_DiskId{DiskId: string(id)},
	}, by(w)))
}

func (r requests) Resize(ctx context.Context, w *ops.Write, v *block.Volume, size cloud.Bytes) (string, error) {
	op, err := started(r.c.disks.Update(ctx, &compute.UpdateDiskRequest{
		DiskId: string(v.ID), Size: int64(size), UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"size"}},
	}, by(w)))
	if fault.Of(err) == fault.InvalidArgument {
		err = fmt.Errorf("the disk has %s, and the cloud does not take the new size: %w: %w", v.Size, fault.OutOfRange, err)
	}
	return op, err
}

func (r requests) Delete(ctx context.Context, w *ops.Write, id cloud.VolumeID) (string, error) {
	return started(r.c.disks.Delete(ctx, &compute.DeleteDiskRequest{DiskId: string(id)}, by(w)))
}

// findInstance reads an instance; nil if there is none.
func (c *Cloud) findInstance(ctx context.Context, id string) (*compute.Instance, error) {
	instance, err := c.instances.Get(ctx, &compute.GetInstanceRequest{InstanceId: id})
	switch {
	case saysNone(err):
		return nil, nil //nolint:nilnil // "there is none" is an answer here
	case err != nil:
		return nil, wrap(err, "read instance %s", id)
	case instance.GetId() != id:
		return nil, fmt.Errorf("read instance %s: %w: the answer is about something else", id, fault.Unavailable)
	}
	return instance, nil
}

// maxKeys is how many idempotency keys one call tries before it creates without one.
const maxKeys = 8

// createResult is the answer to a create.
type createResult struct {
	// id is the id of the object, and operation that of the operation that creates it.
	id, operation string
	// finished: the operation was already done when the cloud answered, so it may belong to an earlier call. failure is
	// its error.
	finished bool
	failure  error
}

// idempotentCreate is a create under an idempotency key.
type idempotentCreate struct {
	// name and kind are those of the Op; the key depends on what and request.
	name, kind, what, request string
	// wait: the call waits for the end of the operation.
	wait bool
	send func(ctx context.Context, w *ops.Write) (*operation.Operation, error)
	// exists reports whether the object that an already finished operation made still exists. It deletes what a failed
	// operation left behind.
	exists func(ctx context.Context, made createResult) (bool, error)
}

// create sends a create. If the cloud knows the key, it answers with the operation that the key began. create waits for one that runs,
// and returns the object of one that is done. If that operation failed, or its object is gone, the key is used up; the next key is
// derived from that operation, so all controllers use the same. With an error create may return the id of the object that the
// failed operation was to create.
func (c *Cloud) create(ctx context.Context, k idempotentCreate) (id string, err error) {
	key := c.idempotencyKey(k.what, k.request, "")
	for n := 0; ; n++ {
		made, err := ops.Run(ctx, c.ops, ops.Op[createResult]{
			Name: k.name, Kind: k.kind, Object: "create " + k.what + " " + k.request, Priority: budget.Write, Key: key,
			Submit: k.submit,
		})
		known := c.seenOperations.Put(made.operation, struct{}{})
		if err != nil || !made.finished {
			return made.id, err
		}
		there, err := k.exists(ctx, made)
		switch {
		case there && known:
			return "", fmt.Errorf("%s: an earlier call has made %s for it: %w", k.name, made.id, fault.Conflict)
		case err != nil || there:
			return made.id, wrap(err, "%s", k.name)
		case n == maxKeys && made.failure != nil:
			return "", wrap(made.failure, "%s", k.name)
		case n == maxKeys:
			return "", fmt.Errorf("%s: what earlier calls made for it was removed: %w", k.name, fault.Unavailable)
		}
		if key = c.idempotencyKey(k.what, k.request, made.operation); n == maxKeys-1 {
			key = ""
		}
	}
}

func (k idempotentCreate) submit(ctx context.Context, w *ops.Write) (made createResult, operation string, err error) {
	op, err := k.send(ctx, w)
	if made.operation, err = started(op, err); err != nil {
		return made, "", err
	}
	if made.id, err = createdBy(op); err != nil {
		return made, "", err
	}
	if made.finished, made.failure = op.GetDone(), failureOf(op); made.finished || !k.wait {
		return made, "", nil
	}
	return made, made.operation, nil
}

// createdBy returns the id of the object that a create makes, which the operation has from its start.
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

// failedWith reports whether an error is that of a failed operation.
func failedWith(err error) bool {
	a := answerOf(err)
	return a != nil && a.operation != "" && fault.Of(err) != fault.Uncertain
}
