package cloudtest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// checked is a layer between the suite and the cloud. It checks that every error has a kind, and delays the suite's reads until
// they can show its last write.
type checked struct {
	cloud.Cloud

	t   testing.TB
	lag time.Duration

	mu    sync.Mutex
	wrote time.Time
}

// answered checks an error of a call.
func (c *checked) answered(call string, err error) {
	if err == nil || fault.Of(err) != fault.None ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	c.t.Errorf("%s = %v, which carries no kind", call, err)
}

// write checks an error of a call that may have changed something, and records the time.
func (c *checked) write(call string, err error) {
	c.answered(call, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrote = time.Now()
}

// settled waits until reads show the last write.
func (c *checked) settled(ctx context.Context) {
	c.mu.Lock()
	wait := time.Until(c.wrote.Add(c.lag))
	c.mu.Unlock()
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (c *checked) Capacity(ctx context.Context, zone string, class []cloud.Parameter) (cloud.Bytes, error) {
	c.settled(ctx)
	size, err := c.Cloud.Capacity(ctx, zone, class)
	c.answered("Capacity", err)
	return size, err
}

func (c *checked) Check(ctx context.Context) error {
	err := c.Cloud.Check(ctx)
	c.answered("Check", err)
	return err
}

func (c *checked) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	vol, err := c.Cloud.CreateVolume(ctx, req)
	c.write("CreateVolume", err)
	return vol, err
}

func (c *checked) FindVolume(ctx context.Context, name string) (cloud.Volume, error) {
	c.settled(ctx)
	vol, err := c.Cloud.FindVolume(ctx, name)
	c.answered("FindVolume", err)
	return vol, err
}

func (c *checked) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	c.settled(ctx)
	vol, err := c.Cloud.GetVolume(ctx, id)
	c.answered("GetVolume", err)
	return vol, err
}

func (c *checked) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	err := c.Cloud.DeleteVolume(ctx, id)
	c.write("DeleteVolume", err)
	return err
}

func (c *checked) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	c.settled(ctx)
	list, err := c.Cloud.ListVolumes(ctx, page)
	c.answered("ListVolumes", err)
	return list, err
}

func (c *checked) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	exp, err := c.Cloud.ExpandVolume(ctx, id, size)
	c.write("ExpandVolume", err)
	return exp, err
}

func (c *checked) ModifyVolume(ctx context.Context, id cloud.VolumeID, tags []cloud.Tag) error {
	err := c.Cloud.ModifyVolume(ctx, id, tags)
	c.write("ModifyVolume", err)
	return err
}

func (c *checked) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	dev, err := c.Cloud.Attach(ctx, id, node)
	c.write("Attach", err)
	return dev, err
}

func (c *checked) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	err := c.Cloud.Detach(ctx, id, node)
	c.write("Detach", err)
	return err
}

func (c *checked) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	snap, err := c.Cloud.CreateSnapshot(ctx, req)
	c.write("CreateSnapshot", err)
	return snap, err
}

func (c *checked) FindSnapshot(ctx context.Context, name string) (cloud.Snapshot, error) {
	c.settled(ctx)
	snap, err := c.Cloud.FindSnapshot(ctx, name)
	c.answered("FindSnapshot", err)
	return snap, err
}

func (c *checked) GetSnapshot(ctx context.Context, id cloud.SnapshotID) (cloud.Snapshot, error) {
	c.settled(ctx)
	snap, err := c.Cloud.GetSnapshot(ctx, id)
	c.answered("GetSnapshot", err)
	return snap, err
}

func (c *checked) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	err := c.Cloud.DeleteSnapshot(ctx, id)
	c.write("DeleteSnapshot", err)
	return err
}

func (c *checked) ListSnapshots(ctx context.Context, of cloud.VolumeID, page cloud.Page) (cloud.SnapshotList, error) {
	c.settled(ctx)
	list, err := c.Cloud.ListSnapshots(ctx, of, page)
	c.answered("ListSnapshots", err)
	return list, err
}
