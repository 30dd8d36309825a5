package yandex

import (
	"testing"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// diskAt is a READY disk of 1 GiB that is attached to these instances.
func diskAt(instances ...string) *compute.Disk {
	return &compute.Disk{Id: "d", ZoneId: "a", Size: int64(cloud.GiB), Status: compute.Disk_READY, InstanceIds: instances}
}

// A1, A2, A7, A9, A11, E3, E4: what a refusal means follows from the state alone.
func TestWhatARefusalMeans(t *testing.T) {
	running := &compute.Instance{Id: "i", ZoneId: "a", Status: compute.Instance_RUNNING}
	holding := func(mode compute.AttachedDisk_Mode) *compute.Instance {
		return &compute.Instance{Id: "i", ZoneId: "a", Status: compute.Instance_RUNNING, SecondaryDisks: []*compute.AttachedDisk{{DiskId: "d", Mode: mode}}}
	}
	writable, booting := holding(compute.AttachedDisk_READ_WRITE), &compute.Instance{Id: "i", ZoneId: "a", Status: compute.Instance_STARTING}
	boots := &compute.Instance{Id: "i", ZoneId: "a", Status: compute.Instance_RUNNING, BootDisk: &compute.AttachedDisk{DiskId: "d"}}
	elsewhere := &compute.Instance{Id: "i", ZoneId: "b", Status: compute.Instance_RUNNING}
	odd, gone := said(codes.FailedPrecondition, "the moon is full"), said(codes.NotFound, "no")
	creating, broken := diskAt(), diskAt()
	creating.Status, broken.Status = compute.Disk_CREATING, compute.Disk_ERROR
	attach := func(d *compute.Disk, i *compute.Instance, settled bool, refusal error) error {
		return decideAttach(placement{d, i}, "i", settled, refusal)
	}
	detach := func(d *compute.Disk, i *compute.Instance, settled bool, refusal error) error {
		return decideDetach(placement{d, i}, "i", settled, refusal)
	}
	attached := said(codes.FailedPrecondition, `Disk "d" has an invalid state for this operation: attached to non-stopped instance`)
	tests := map[string]struct {
		got  error
		want error
	}{
		"attach: it is there":                        {attach(diskAt("i"), writable, true, odd), nil},
		"attach: it is there and may be leaving":     {attach(diskAt("i"), writable, false, odd), fault.Busy},
		"attach: it is there for reading only":       {attach(diskAt("i"), holding(compute.AttachedDisk_READ_ONLY), true, odd), fault.Precondition},
		"attach: the instance does not show it yet":  {attach(diskAt("i"), running, true, odd), fault.Unavailable},
		"attach: it boots the instance":              {attach(diskAt("i"), boots, true, odd), fault.Precondition},
		"attach: it is elsewhere":                    {attach(diskAt("j"), running, true, odd), fault.AttachedElsewhere},
		"attach: it is elsewhere and may be leaving": {attach(diskAt("j"), running, false, odd), fault.Busy},
		"attach: there is no disk":                   {attach(nil, nil, false, gone), fault.NotFound},
		"attach: there is no instance":               {attach(diskAt(), nil, true, gone), fault.NotFound},
		"attach: the disk is being made":             {attach(creating, running, true, odd), fault.Unavailable},
		"attach: the disk is broken":                 {attach(broken, running, true, odd), fault.Unavailable},
		"attach: another zone":                       {attach(diskAt(), elsewhere, true, odd), fault.WrongZone},
		"attach: the instance is full":               {attach(diskAt(), running, true, said(codes.ResourceExhausted, wordsSlots)), fault.NoSlot},
		"attach: the instance boots":                 {attach(diskAt(), booting, true, odd), fault.Unavailable},
		"attach: nothing explains it":                {attach(diskAt(), running, true, odd), fault.Busy},
		"detach: it is free":                         {detach(diskAt(), running, true, odd), nil},
		"detach: it is elsewhere":                    {detach(diskAt("j"), running, true, odd), nil},
		"detach: it is free and may be coming":       {detach(diskAt(), running, false, odd), fault.Busy},
		"detach: there is no disk":                   {detach(nil, nil, false, gone), nil},
		"detach: the instance is gone":               {detach(diskAt("i"), nil, true, gone), fault.Unavailable},
		"detach: it boots the instance":              {detach(diskAt("i"), boots, true, odd), fault.Precondition},
		"detach: the instance boots":                 {detach(diskAt("i"), booting, true, odd), fault.Unavailable},
		"detach: nothing explains it":                {detach(diskAt("i"), writable, true, odd), fault.Busy},
		"delete: it is attached":                     {decideDelete(diskAt("i"), true, odd), fault.VolumeInUse},
		"delete: it is attached and may be leaving":  {decideDelete(diskAt("i"), false, odd), fault.Busy},
		"delete: there is no disk":                   {decideDelete(nil, false, odd), nil},
		"delete: nothing explains it":                {decideDelete(diskAt(), true, odd), fault.Busy},
		"resize: it has grown":                       {decideResize(diskAt("i"), cloud.GiB, true, odd), nil},
		"resize: it may shrink back":                 {decideResize(diskAt("i"), cloud.GiB, false, odd), fault.Busy},
		"resize: not while it is attached":           {decideResize(diskAt("i"), 5*cloud.GiB, true, attached), fault.GrowDetach},
		"resize: it was attached a moment ago":       {decideResize(diskAt(), 5*cloud.GiB, true, attached), fault.Busy},
		"resize: the size can never be":              {decideResize(diskAt("i"), 5*cloud.GiB, true, said(codes.InvalidArgument, "no")), fault.OutOfRange},
		"resize: there is no disk":                   {decideResize(nil, 5*cloud.GiB, true, gone), fault.NotFound},
		"resize: nothing explains it":                {decideResize(diskAt("i"), 5*cloud.GiB, true, odd), fault.Busy},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if fault.Of(tc.got) != fault.Of(tc.want) || fault.ReasonOf(tc.got) != fault.ReasonOf(tc.want) {
				t.Errorf("it means %v with the reason %q, want the kind %q and the reason %q", tc.got, string(fault.ReasonOf(tc.got)), fault.Of(tc.want), string(fault.ReasonOf(tc.want)))
			}
		})
	}
}
