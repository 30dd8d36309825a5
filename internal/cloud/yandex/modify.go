package yandex

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// labelLease is for how long labels that were read may be written back: a change by another client between is lost.
const labelLease = 2 * time.Second

// ModifyVolume puts labels on a disk. The API replaces all labels of a disk, so the request is sent right after a read.
func (c *Cloud) ModifyVolume(ctx context.Context, id cloud.VolumeID, list []cloud.Tag) error {
	if !objectID(id) {
		return fmt.Errorf("modify disk %.80q: %w: no disk has such an id", id, fault.NotFound)
	}
	wanted := map[string]string{}
	for _, t := range list {
		value, err := labelOf(t)
		if strings.HasPrefix(t.Key, tags.Own) {
			err = fmt.Errorf("label %q is the driver's own: %w", t.Key, fault.InvalidArgument)
		}
		if err != nil {
			return fmt.Errorf("modify disk %s: %w", id, err)
		}
		wanted[t.Key] = value
	}
	var labels map[string]string // of the last read, with those wanted
	_, err := ops.Run(ctx, c.ops, ops.Op[*compute.Disk]{
		Name: fmt.Sprintf("put labels %v on disk %s", wanted, id), Kind: "modify", Object: diskKey(id), Priority: budget.Write, Lease: labelLease,
		Submit: func(ctx context.Context, w *ops.Write) (*compute.Disk, string, error) {
			op, err := started(c.disks.Update(ctx, &compute.UpdateDiskRequest{
				DiskId: string(id), Labels: labels, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels"}},
			}, by(w)))
			return nil, op, err
		},
		State: func(ctx context.Context) (*compute.Disk, error) {
			d, err := c.findDisk(ctx, id, budget.Read)
			labels = withLabels(d, wanted)
			return d, err
		},
		Decide: func(d *compute.Disk, _ bool, refusal error) error { return decideModify(d, wanted, refusal) },
	})
	return err
}

// withLabels returns the labels of a disk after a change.
func withLabels(d *compute.Disk, wanted map[string]string) map[string]string {
	labels := maps.Clone(wanted)
	for key, value := range d.GetLabels() {
		if _, changed := wanted[key]; !changed {
			labels[key] = value
		}
	}
	return labels
}

// decideModify says what the state means for labels that are refused, or not sent yet.
func decideModify(d *compute.Disk, wanted map[string]string, refusal error) error {
	labels := withLabels(d, wanted)
	switch {
	case d == nil:
		return fmt.Errorf("%w: there is no such disk", fault.NotFound)
	case maps.Equal(labels, d.GetLabels()):
		return nil
	case len(labels) > maxLabels:
		return fmt.Errorf("the disk would have %d labels, the cloud takes %d: %w", len(labels), maxLabels, fault.InvalidArgument)
	case refusal == nil:
		return fault.Busy
	case fault.Of(refusal) == fault.InvalidArgument:
		return refusal
	default:
		return fmt.Errorf("%w: %w", fault.Busy, refusal)
	}
}
