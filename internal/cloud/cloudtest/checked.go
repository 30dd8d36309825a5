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

// answered checks an error of a call and returns it.
func (c *checked) answered(call string, err error) error {
	if err != nil && fault.Of(err) == fault.None && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		c.t.Errorf("%s = %v, which carries no kind", call, err)
	}
	return err
}

// write is answered for a call that may have changed something. It records the time.
func (c *checked) write(call string, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrote = time.Now()
	return c.answered(call, err)
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
	return size, c.answered("Capacity", err)
}

func (c *checked) Check(ctx context.Context) error {
	return c.answered("Check", c.Cloud.Check(ctx))
}

func (c *checked) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	vol, err := c.Cloud.CreateVolume(ctx, req)
	return vol, c.write("CreateVolume", err)
}

func (c *checked) FindVolume(ctx context.Context, name string) (cloud.Volume, error) {
	c.settled(ctx)
	vol, err := c.Cloud.FindVolume(ctx, name)
	return vol, c.answered("FindVolume", err)
}

func (c *checked) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	c.settled(ctx)
	vol, err := c.Cloud.GetVolume(ctx, id)
	return vol, c.answered("GetVolume", err)
}

func (c *checked) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	return c.write("DeleteVolume", c.Cloud.DeleteVolume(ctx, id))
}

func (c *checked) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	c.settled(ctx)
	list, err := c.Cloud.ListVolumes(ctx, page)
	return list, c.answered("ListVolumes", err)
}

func (c *checked) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	exp, err := c.Cloud.ExpandVolume(ctx, id, size)
	return exp, c.write("ExpandVolume", err)
}

func (c *checked) ModifyVolume(ctx context.Context, id cloud.VolumeID, tags []cloud.Tag) error {
	return c.write("ModifyVolume", c.Cloud.ModifyVolume(ctx, id, tags))
}

func (c *checked) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	dev, err := c.Cloud.Attach(ctx, id, node)
	return dev, c.write("Attach", err)
}

func (c *checked) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	return c.write("Detach", c.Cloud.Detach(ctx, id, node))
}

func (c *checked) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	snap, err := c.Cloud.CreateSnapshot(ctx, req)
	return snap, c.write("CreateSnapshot", err)
}

func (c *checked) FindSnapshot(ctx context.Context, name string) (cloud.Snapshot, error) {
	c.settled(ctx)
	snap, err := c.Cloud.FindSnapshot(ctx, name)
	return snap, c.answered("FindSnapshot", err)
}

func (c *checked) GetSnapshot(ctx context.Context, id cloud.SnapshotID) (cloud.Snapshot, error) {
	c.settled(ctx)
	snap, err := c.Cloud.GetSnapshot(ctx, id)
	return snap, c.answered("GetSnapshot", err)
}

func (c *checked) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	return c.write("DeleteSnapshot", c.Cloud.DeleteSnapshot(ctx, id))
}

func (c *checked) ListSnapshots(ctx context.Context, of cloud.VolumeID, page cloud.Page) (cloud.SnapshotList, error) {
	c.settled(ctx)
	list, err := c.Cloud.ListSnapshots(ctx, of, page)
	return list, c.answered("ListSnapshots", err)
}
