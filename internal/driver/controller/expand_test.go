package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/controller"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// grown grows a volume and returns the response and how long the call took.
func grown(ctx context.Context, t *testing.T, c cloud.Cloud, id cloud.VolumeID, capability *csi.VolumeCapability) (*csi.ControllerExpandVolumeResponse, time.Duration) {
	t.Helper()
	names := memoryNames(t)
	began := time.Now()
	answer, err := controller.New(c, names).ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: string(id), CapacityRange: &csi.CapacityRange{RequiredBytes: 3 * gib}, VolumeCapability: capability,
	})
	if err != nil {
		t.Errorf("ControllerExpandVolume of %s: %v", id, err)
	}
	return answer, time.Since(began)
}

// wide is a cloud whose volumes consist of whole drives and have that unit of sizes.
type wide struct {
	cloud.Cloud

	drive cloud.Bytes
}

func (w wide) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	v, err := w.Cloud.GetVolume(ctx, id)
	v.SizeStep = w.drive
	return v, err
}

func (w wide) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	return w.Cloud.ExpandVolume(ctx, id, (size+w.drive-1)/w.drive*w.drive)
}

// E3: a volume can never be made smaller again, so a growth beyond the limit is not begun.
func TestAVolumeThatWouldGrowBeyondTheLimitIsLeftAsItIs(t *testing.T) {
	for name, tc := range map[string]struct {
		asked *csi.CapacityRange
		code  fault.Kind
		has   int64 // in the end
	}{
		"the next drive is too much":     {&csi.CapacityRange{RequiredBytes: 9 * gib, LimitBytes: 15 * gib}, fault.OutOfRange, 8 * gib},
		"the next drive just fits":       {&csi.CapacityRange{RequiredBytes: 9 * gib, LimitBytes: 16 * gib}, fault.None, 16 * gib},
		"there is no limit":              {&csi.CapacityRange{RequiredBytes: 9 * gib}, fault.None, 16 * gib},
		"it is large enough already":     {&csi.CapacityRange{RequiredBytes: 7 * gib, LimitBytes: 9 * gib}, fault.None, 8 * gib},
		"it is larger than that already": {&csi.CapacityRange{RequiredBytes: 3 * gib, LimitBytes: 7 * gib}, fault.OutOfRange, 8 * gib},
		"the limit is the size":          {&csi.CapacityRange{LimitBytes: 8 * gib}, fault.None, 8 * gib},
	} {
		t.Run(name, func(t *testing.T) {
			c := wide{memory.New(memory.Config{}), 8 * cloud.GiB}
			v, err := c.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "v", Size: c.drive})
			must(t, err)
			names := memoryNames(t)
			answer, err := controller.New(c, names).ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
				VolumeId: string(v.ID), CapacityRange: tc.asked,
			})
			if fault.Of(err) != tc.code || err == nil && answer.GetCapacityBytes() != tc.has {
				t.Errorf("ControllerExpandVolume = %v, %v, want %d and the kind %q", answer, err, tc.has, tc.code)
			}
			if v, err = c.GetVolume(t.Context(), v.ID); err != nil || int64(v.Size) != tc.has {
				t.Errorf("the volume has %d bytes (%v), want %d", int64(v.Size), err, tc.has)
			}
		})
	}
}

// onNode creates a volume in a new account inside the decorators, and attaches it to a node if requested.
func onNode(t *testing.T, cfg memory.Config, attached bool) (*memory.Cloud, cloud.Cloud, cloud.VolumeID) {
	t.Helper()
	bare := memory.New(cfg)
	c := middleware.Stack(bare, wait.Backoff{})
	v, err := c.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "v", Size: 2 * cloud.GiB})
	if err == nil && attached {
		_, err = c.Attach(t.Context(), v.ID, "node-1")
	}
	must(t, err)
	return bare, c, v.ID
}

// E1: a node expansion is required for filesystems, and for raw devices only if the node must confirm the size. The call does not wait
// until the node shows a growth: nothing tells whether its pod is about to end.
func TestExpandAsksTheNodeOnlyWhereItHasToFollow(t *testing.T) {
	for name, tc := range map[string]struct {
		capability        *csi.VolumeCapability
		confirm, attached bool
		want              bool
	}{
		"a filesystem":                               {filesystem(), false, true, true},
		"a filesystem that is nowhere":               {filesystem(), true, false, true},
		"a filesystem where nodes must confirm":      {filesystem(), true, true, true},
		"a raw device":                               {block(), false, true, false},
		"a raw device that is nowhere":               {block(), true, false, false},
		"a raw device where nodes must confirm":      {block(), true, true, true},
		"it is not said":                             {nil, false, false, true},
		"it is not said, and nodes must confirm, so": {nil, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, c, id := onNode(t, memory.Config{NodeMustConfirm: tc.confirm}, tc.attached)
				answer, took := grown(t.Context(), t, c, id, tc.capability)
				want := &csi.ControllerExpandVolumeResponse{CapacityBytes: 3 * gib, NodeExpansionRequired: tc.want}
				if !proto.Equal(answer, want) || took > 0 {
					t.Errorf("ControllerExpandVolume = %v after %s, want %v at once", answer, took, want)
				}
			})
		})
	}
}

// full is a cloud whose quota refuses every growth and snapshot.
type full struct{ cloud.Cloud }

func (full) ExpandVolume(context.Context, cloud.VolumeID, cloud.Bytes) (cloud.Expansion, error) {
	return cloud.Expansion{}, fmt.Errorf("capacity limit exceeded: %w", fault.Exhausted)
}

// ModifyVolume is as ExpandVolume.
func (full) ModifyVolume(context.Context, cloud.VolumeID, []cloud.Tag) error {
	return fmt.Errorf("tag limit reached: %w", fault.Quota)
}

// CreateSnapshot is as ExpandVolume.
func (full) CreateSnapshot(context.Context, cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	return cloud.Snapshot{}, fmt.Errorf("the volume has 25 snapshots: %w", fault.Quota)
}

// E6: a quota that refuses a growth is OutOfRange. The resizer treats ResourceExhausted as a growth that may be under way, and
// would repeat the old size for ever when the PersistentVolumeClaim is lowered.
func TestAQuotaThatRefusesAGrowthIsOutOfRange(t *testing.T) {
	names := memoryNames(t)
	c := full{memory.New(memory.Config{})}
	v, err := c.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "v", Size: cloud.GiB})
	must(t, err)
	_, err = controller.New(c, names).ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: string(v.ID), CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * gib},
	})
	if fault.Of(err) != fault.OutOfRange || !strings.Contains(err.Error(), "capacity limit exceeded") {
		t.Errorf("ControllerExpandVolume = %v, want %q with the cloud's words", err, fault.OutOfRange)
	}
}

// E9: a quota that refuses a VolumeAttributesClass is InvalidArgument. The resizer treats ResourceExhausted as a change that may be under way,
// and would repeat the old class for ever when the PersistentVolumeClaim gets another one (kubernetes/kubernetes#130597).
func TestAQuotaThatRefusesAChangeIsInvalidArgument(t *testing.T) {
	names := memoryNames(t)
	_, err := controller.New(full{memory.New(memory.Config{})}, names).ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{
		VolumeId: "vol-1", MutableParameters: map[string]string{"tags": "a=b"},
	})
	if fault.Of(err) != fault.InvalidArgument || !driver.Final(err) || fault.ReasonOf(err) != fault.Quota || !strings.Contains(err.Error(), "tag limit") {
		t.Errorf("ControllerModifyVolume = %v, want %q with the reason %s and the cloud's words", err, fault.InvalidArgument, fault.Quota)
	}
}

// C18: a quota that refuses a snapshot is final. external-snapshotter treats ResourceExhausted as a snapshot that may be under way, and
// would not let its VolumeSnapshot be deleted.
func TestAQuotaThatRefusesASnapshotIsFinal(t *testing.T) {
	names := memoryNames(t)
	_, err := controller.New(full{memory.New(memory.Config{})}, names).CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{
		Name: "s", SourceVolumeId: "vol-1",
	})
	if fault.Of(err) != fault.Precondition || !driver.Final(err) || fault.ReasonOf(err) != fault.Quota || !strings.Contains(err.Error(), "25 snapshots") {
		t.Errorf("CreateSnapshot = %v, want %q with the reason %s and the cloud's words", err, fault.Precondition, fault.Quota)
	}
}
