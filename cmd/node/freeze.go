package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/node"
)

// freezer answers the requests in the pool to freeze a volume's filesystem for the moment of a copy.
type freezer struct {
	pool   *pool.Pool
	server *node.Server
	log    *zap.Logger
}

// start thaws what is left, then serves requests until ctx ends or stop is called. stop returns when
// nothing is frozen any more.
func (f freezer) start(ctx context.Context) (stop func()) {
	f.thawLeft(ctx)
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := f.pool.WatchFreezes(ctx, f.serve); err != nil {
			f.log.Error("no volume in use can be frozen for a snapshot or a clone until this program is started again", zap.Error(err))
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// thawLeft thaws what a program before this one had frozen when it was killed. It comes before
// anything is served. What cannot be thawed stays noted for the next start.
func (f freezer) thawLeft(ctx context.Context) {
	for _, id := range f.pool.Frozen() {
		volume := f.pool.Handle(id).String()
		// First, so that nobody takes for consistent what is written to from now on.
		err := f.pool.WithdrawAnswer(id)
		if err == nil {
			err = f.server.ThawLeft(ctx, volume)
		}
		if err == nil {
			err = f.pool.EndFreeze(id)
		}
		if err != nil {
			f.log.Error("a filesystem that an earlier node program froze may still be frozen; look with `fsfreeze -u`",
				zap.String("volume_id", volume), zap.Error(err))
			continue
		}
		f.log.Warn("thawed what an earlier node program had frozen when it was killed", zap.String("volume_id", volume))
	}
}

// serve freezes one volume and thaws it when ctx ends.
func (f freezer) serve(ctx context.Context, req pool.FreezeRequest) {
	volume := f.pool.Handle(req.Volume).String()
	log := f.log.With(zap.String("volume_id", volume))
	frozen, err := f.server.Freeze(ctx, node.FreezeRequest{
		Volume: volume, For: time.Until(req.Deadline), Answer: f.pool.AnswerPath(req.Volume),
		Begin: func() error { return f.pool.BeginFreeze(req) },
	})
	if err != nil {
		log.Info("did not freeze the volume", zap.Error(err))
		if err := errors.Join(f.pool.EndFreeze(req.Volume), f.pool.RefuseFreeze(req, err.Error())); err != nil {
			log.Warn("could not say so", zap.Error(err))
		}
		return
	}
	begin := time.Now()
	if err = f.pool.AnswerFreeze(req, req.Deadline); err == nil {
		select {
		case <-ctx.Done():
		case <-frozen.Done():
			log.Error("the guard of the frozen volume ended before its time")
		}
	}
	// Taken back before the thaw, whatever happens next.
	err = errors.Join(err, f.pool.WithdrawAnswer(req.Volume))
	if thawErr := frozen.Thaw(); thawErr != nil {
		// The note of what is frozen stays, and the next start tries again.
		log.Error("the volume may still be frozen", zap.Error(errors.Join(err, thawErr)))
		return
	}
	err = errors.Join(err, f.pool.EndFreeze(req.Volume))
	log.Info("froze and thawed the volume", zap.Duration("frozen", time.Since(begin)), zap.Error(err))
}
