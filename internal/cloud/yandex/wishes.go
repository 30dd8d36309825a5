package yandex

import (
	"context"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/wish"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// wishes is what a growth that waits for a detach needs of the cloud.
type wishes struct{ *Cloud }

var _ wish.Volumes = wishes{}

func (c *Cloud) newKeeper(cfg Config) *wish.Keeper {
	return wish.NewKeeper(wish.Config{
		Volumes: wishes{c}, Work: c.work, Patience: c.patient, Failed: cfg.Metrics.WishFailed, Log: c.log,
	})
}

// Wishes reports whether a disk that was free a moment ago has a wish.
func (c wishes) Wishes(ctx context.Context, id cloud.VolumeID) (bool, error) {
	if f, known := c.known.of(id); known && f.wish {
		return true, nil
	}
	d, err := c.states.Get(ctx, id)
	if err != nil {
		return false, err
	}
	_, has := growthOf(d.GetLabels())
	return has, nil
}

// Look returns the present state of a disk.
func (c wishes) Look(ctx context.Context, id cloud.VolumeID) (wish.State, error) {
	d, err := c.look(ctx, id)
	if err != nil || d == nil {
		return wish.State{}, err
	}
	g, _ := growthOf(d.GetLabels())
	return wish.State{Exists: true, Free: len(d.GetInstanceIds()) == 0, Size: sizeOf(d), Wished: g.size}, nil
}

// Grow makes a free disk larger, and takes the wish off it in the same operation: each one holds the disk for a
// while, and a pod waits.
func (c wishes) Grow(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) error {
	if _, _, err := c.resize(ctx, id, size, true); err != nil {
		return err
	}
	c.known.change(id, func(f *fact) { f.size, f.certain = max(f.size, size), size })
	return nil
}

// Fulfil takes the wish off the disk, unless it is another one by now that is for more.
func (c wishes) Fulfil(ctx context.Context, id cloud.VolumeID) {
	c.unwish(ctx, id, func(d *compute.Disk, wish growth) bool { return sizeOf(d) >= wish.size })
}

// Note writes on the disk why its wish failed.
func (c wishes) Note(ctx context.Context, id cloud.VolumeID, size cloud.Bytes, why error) error {
	reason := string(fault.Of(why))
	if a := answerOf(why); a != nil {
		reason = a.words
	}
	return c.setWish(ctx, id, growth{size: size, failed: reason}, func(_ *compute.Disk, wish growth) bool { return wish.size == size })
}

// unwish takes a wish off a disk that it is meant for; nil: whatever wish. One that stays is looked at again by
// whoever looks at the disk.
func (c *Cloud) unwish(ctx context.Context, id cloud.VolumeID, meant func(d *compute.Disk, wish growth) bool) {
	if err := c.setWish(ctx, id, growth{}, meant); err != nil {
		c.log.Debug("the label of a wish stays on the disk", zap.String("volume_id", string(id)), zap.Error(err))
	}
}
