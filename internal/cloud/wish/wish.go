// Package wish grows volumes that a cloud would not grow while they were attached.
//
// The wish stands on the volume itself, as a tag or label, so it outlives every controller. A volume that has
// been detached grows at once and nobody waits for it; an attach joins a growth that goes on, or carries out a
// wish that nobody did. A wish is tried once per detach or attach, and one that fails never blocks a pod: its
// reason is kept with it.
package wish

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
)

// longest bounds how long an attach waits for a wish.
const longest = time.Minute

// State is what a look at a volume has found.
type State struct {
	// Exists: there is such a volume. Free: it is attached to nothing.
	Exists, Free bool
	// Size is the present one, Wished the one to grow to; 0: there is no wish.
	Size, Wished cloud.Bytes
}

// Volumes is what a backend does for its wishes.
type Volumes interface {
	// Wishes reports whether a volume that was free a moment ago has a wish, with a read that others share.
	Wishes(ctx context.Context, id cloud.VolumeID) (bool, error)
	// Look returns the present state of a volume.
	Look(ctx context.Context, id cloud.VolumeID) (State, error)
	// Grow makes a free volume larger.
	Grow(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) error
	// Fulfil takes the wish off the volume. What fails is looked at again by whoever looks at the volume.
	Fulfil(ctx context.Context, id cloud.VolumeID)
	// Note writes on the volume why its wish failed.
	Note(ctx context.Context, id cloud.VolumeID, size cloud.Bytes, why error) error
}

// Config is what a Keeper needs.
type Config struct {
	Volumes Volumes
	// Work has the growths that go on in the background.
	Work *remote.Work
	// Patience bounds one of them.
	Patience time.Duration
	// Failed is called when a growth that had waited for a detach failed too.
	Failed func()
	Log    *zap.Logger
}

// Keeper carries out the wishes of one backend.
type Keeper struct {
	cfg Config

	mu    sync.Mutex
	ended map[cloud.VolumeID]chan struct{} // of growths in the background: closed at their end
}

// NewKeeper makes a Keeper.
func NewKeeper(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, ended: map[cloud.VolumeID]chan struct{}{}}
}

// Soon carries out the wish of a volume that is free now, should it have one, in the background. Another
// controller may have written it, so it is looked for each time, with one read for all whose detach ended at
// the same look.
func (k *Keeper) Soon(id cloud.VolumeID) {
	life := k.cfg.Work.Life()
	k.mu.Lock()
	defer k.mu.Unlock()
	if life.Err() != nil || k.ended[id] != nil {
		return
	}
	ended := make(chan struct{})
	k.ended[id] = ended
	k.cfg.Work.Go(func() {
		defer func() {
			k.mu.Lock()
			delete(k.ended, id)
			k.mu.Unlock()
			close(ended)
		}()
		ctx, cancel := context.WithTimeout(budget.WithPriority(life, budget.Attach), k.cfg.Patience)
		defer cancel()
		if has, err := k.cfg.Volumes.Wishes(ctx, id); err != nil || !has {
			return // the next detach looks again
		}
		k.carryOut(ctx, id)
	})
}

// Before joins a growth that goes on, or carries out a wish that nobody did, if the volume is known to have
// one. It fails no attach.
func (k *Keeper) Before(ctx context.Context, id cloud.VolumeID, wished bool) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	k.mu.Lock()
	ended := k.ended[id]
	k.mu.Unlock()
	if ended != nil {
		select {
		case <-ended:
		case <-ctx.Done():
		}
		return // it was tried once since the detach
	}
	if wished {
		k.carryOut(ctx, id)
	}
}

// carryOut grows a volume that is free to the size of its wish, once, and takes the wish off.
func (k *Keeper) carryOut(ctx context.Context, id cloud.VolumeID) {
	now, err := k.cfg.Volumes.Look(ctx, id)
	if err != nil || !now.Exists || !now.Free || now.Wished == 0 {
		return // gone, or in use: the next detach comes back to it
	}
	if now.Size < now.Wished {
		if err := k.cfg.Volumes.Grow(ctx, id, now.Wished); err != nil {
			k.failed(ctx, id, now.Wished, err)
			return
		}
		k.cfg.Log.Info("the volume has grown as it was wished", zap.String("volume_id", string(id)), zap.Stringer("size", now.Wished))
	}
	k.cfg.Volumes.Fulfil(ctx, id)
}

func (k *Keeper) failed(ctx context.Context, id cloud.VolumeID, size cloud.Bytes, why error) {
	if ctx.Err() != nil {
		return // nothing has failed, it only goes on without us
	}
	k.cfg.Failed()
	k.cfg.Log.Warn("the volume was to grow while it was detached, and could not; it is attached all the same and tried again after the next detach",
		zap.String("volume_id", string(id)), zap.Stringer("size", size), zap.Error(why))
	if err := k.cfg.Volumes.Note(ctx, id, size, why); err != nil {
		k.cfg.Log.Warn("the reason could not be written on the volume", zap.String("volume_id", string(id)), zap.Error(err))
	}
}
