package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/pools"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// lockPoll repeats the attempt to get a held lock, because flock(2) cannot wait until a context ends.
var lockPoll = wait.Every(200*time.Millisecond, 0)

// lockPools locks the folder of each pool that can be used now. It does not lock a pool that is missing now and appears later:
// another node program of this node waits for the locks of the others. All programs lock in the same order.
func lockPools(ctx context.Context, pools *pools.Set, log *zap.Logger) (release func(), err error) {
	usable, _ := pools.Pools(ctx)
	var releases []func()
	release = func() {
		for _, r := range releases {
			r()
		}
	}
	slices.SortFunc(usable, func(a, b pool.Storage) int { return strings.Compare(a.Dir(), b.Dir()) })
	for _, p := range usable {
		one, err := lockFolder(ctx, p.Dir(), log)
		if err != nil {
			release()
			return nil, err
		}
		releases = append(releases, one)
	}
	return release, nil
}

// lockFolder waits until no other node program has the lock of the folder, and holds it until release is called. Two programs would
// not see each other's locks of volumes, so one could unmount what the other has just mounted. The kernel releases the lock when
// the process dies; the programs that it runs do not inherit it, because os.Open sets close-on-exec. The lock is on the folder
// itself, so there is no file that could be removed or replaced.
func lockFolder(ctx context.Context, dir string, log *zap.Logger) (release func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock folder: %w", err)
	}
	waiting := false
	held := func(err error) bool { return errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) }
	err = lockPoll.Retry(ctx, held, func() error {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if held(err) && !waiting {
			waiting = true
			log.Warn("another node program serves this node; waiting until it has ended", zap.String("folder", dir))
		}
		return err
	})
	switch {
	case err == nil:
		return func() { _ = f.Close() }, nil
	case held(err):
		return nil, errors.Join(fmt.Errorf("wait for the other node program on folder %s: %w", dir, cmp.Or(ctx.Err(), err)), f.Close())
	}
	return nil, errors.Join(fmt.Errorf("lock folder %s: %w", dir, err), f.Close())
}
