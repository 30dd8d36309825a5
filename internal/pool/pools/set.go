// Package pools opens the pools of one node and finds volumes and snapshots in them.
package pools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/lvm"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Set is the pools of one node, by their names. The id of a volume or a snapshot names its pool.
//
// A pool that cannot be used is missing. The other pools still work. A call for a missing pool tries to open it and returns why it
// cannot be used. A pool that is ErrNotHere and was not open in this process before does not count as missing: nodes have the same
// configuration and different disks.
type Set struct {
	members map[string]*member
	// Each runs one call of a pool at a time.
	opening, checking, others wait.Guard
}

// member is one pool of a set.
type member struct {
	cfg  pool.Config
	pool atomic.Pointer[pool.Storage] // nil until it is open
}

// leftOut reports, by the error of its open, whether the node does not have the pool, as opposed to a missing pool.
func (m *member) leftOut(err error) bool { return errors.Is(err, pool.ErrNotHere) && !m.cfg.MustExist }

// Open opens the pools of one node. They have different names, and so different filesystems, because each stores its name. It fails if
// none can be used.
func Open(ctx context.Context, configs ...pool.Config) (*Set, error) {
	s := &Set{members: map[string]*member{}}
	for _, cfg := range configs {
		s.members[cmp.Or(cfg.Name, pool.DefaultName)] = &member{cfg: cfg}
	}
	usable, err := s.Pools(ctx)
	if len(usable) > 0 {
		return s, nil
	}
	for _, name := range s.names() {
		if _, openErr := s.open(ctx, s.members[name]); s.members[name].leftOut(openErr) {
			err = errors.Join(err, openErr)
		}
	}
	return nil, err
}

func (s *Set) names() []string { return slices.Sorted(maps.Keys(s.members)) }

// Pools returns the usable pools. The error tells which pools are missing and why; it omits those that the node does not have. Pools
// with the names in except are in neither, and are not touched.
func (s *Set) Pools(ctx context.Context, except ...string) (usable []pool.Storage, missing error) {
	var errs []error
	for _, name := range s.names() {
		if slices.Contains(except, name) {
			continue
		}
		p, err := s.open(ctx, s.members[name])
		if s.members[name].leftOut(err) {
			continue
		}
		if err == nil {
			err = s.check(ctx, p)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		usable = append(usable, p)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return usable, errors.Join(errs...)
}

// checkBound is how long the check of a pool may take before the pool counts as missing, because its disk may hang. Others that check it
// at the same time wait for their turn.
const checkBound = 30 * time.Second

// check is the pool's Check. While one hangs, later ones fail at once.
func (s *Set) check(ctx context.Context, p pool.Storage) error {
	err := s.checking.Run(ctx, p.Name(), checkBound, func(ctx context.Context) error { return p.Check(context.WithoutCancel(ctx)) })
	if errors.Is(err, wait.ErrNoAnswer) {
		err = fmt.Errorf("pool %s does not answer; look for its disk in the kernel's log: %w: %w", p.Location(), fault.PoolUnusable, err)
	}
	return err
}

// Check returns an error while a pool is missing.
func (s *Set) Check(ctx context.Context) error {
	_, missing := s.Pools(ctx)
	return missing
}

// Close stops the work of this process in volume groups; see lvm.Pool.Close.
func (s *Set) Close(ctx context.Context) error {
	var errs []error
	for _, p := range s.Opened() {
		if g, ok := p.(*lvm.Pool); ok {
			errs = append(errs, g.Close(ctx))
		}
	}
	return errors.Join(errs...)
}

// Named returns the pool with this name. fault.NotFound when none has the name.
func (s *Set) Named(ctx context.Context, name string) (pool.Storage, error) {
	if m := s.members[name]; m != nil {
		return s.open(ctx, m)
	}
	return nil, fmt.Errorf("there is no pool %s on this node, there is %s: %w", name, strings.Join(s.names(), ", "), fault.NotFound)
}

// Of returns the pool of a handle. fault.PoolUnusable if this node does not have the pool or cannot use it, and never fault.NotFound,
// because the volume may exist.
func (s *Set) Of(ctx context.Context, h pool.Handle) (pool.Storage, error) {
	if m := s.members[h.Pool]; m != nil {
		return s.open(ctx, m)
	}
	return nil, fmt.Errorf("%s is in the pool %s, there is %s; start with that pool in --local-pool: %w", h, h.Pool, strings.Join(s.names(), ", "), fault.PoolUnusable)
}

// FindByName returns the volume with this name, and its pool; see pool.Objects.FindByName. fault.Precondition when
// none of the usable pools has the name and one is missing, fault.Conflict when several have it.
func (s *Set) FindByName(ctx context.Context, name string) (pool.Storage, pool.Entry, error) {
	return s.find(ctx, name, pool.Storage.FindByName)
}

// FindSnapshot is FindByName for a snapshot.
func (s *Set) FindSnapshot(ctx context.Context, name string) (pool.Storage, pool.Entry, error) {
	return s.find(ctx, name, pool.Storage.FindSnapshot)
}

// othersBound is how long CheckOthers waits for each pool. It is long enough for a volume group that runs other commands meanwhile.
const othersBound = 10 * time.Second

// CheckOthers returns fault.Conflict if another pool than p has a volume with this name, because the class of the request has changed
// its pool. Each pool checks its own names. A pool that is missing, or whose disk hangs, does not affect the others.
func (s *Set) CheckOthers(ctx context.Context, p pool.Storage, name string) error {
	for _, other := range s.Opened() {
		if other == p {
			continue
		}
		err := s.others.Run(ctx, other.Name(), othersBound, func(ctx context.Context) error {
			// While it hangs, later calls do not wait for it again.
			entries, err := other.List(context.WithoutCancel(ctx))
			if err != nil {
				return nil //nolint:nilerr // it is missing
			}
			for _, e := range pool.Named(entries, name) {
				if e.Kind == pool.Whole || e.Kind == pool.UnderWay {
					return fmt.Errorf("the name belongs to volume %s: %w", other.Handle(e.ID), fault.Conflict)
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, wait.ErrNoAnswer) {
			return err
		}
	}
	return nil
}

func (s *Set) find(ctx context.Context, name string, in func(pool.Storage, context.Context, string) (pool.Entry, error)) (holder pool.Storage, found pool.Entry, err error) {
	usable, missing := s.Pools(ctx)
	for _, p := range usable {
		e, err := in(p, ctx, name)
		switch {
		case errors.Is(err, fault.NotFound):
			continue
		case err != nil:
			return nil, pool.Entry{}, err
		case holder != nil:
			return nil, pool.Entry{}, fmt.Errorf("the pools %s and %s both have the name %q: %w", holder.Name(), p.Name(), name, fault.Conflict)
		}
		holder, found = p, e
	}
	switch {
	case holder != nil:
		return holder, found, nil
	case ctx.Err() != nil:
		return nil, pool.Entry{}, ctx.Err()
	case missing != nil:
		return nil, pool.Entry{}, fmt.Errorf("the name %q is in no pool that can be used: %w: %w", name, fault.PoolUnusable, missing)
	}
	return nil, pool.Entry{}, fmt.Errorf("no pool has the name %q: %w", name, fault.NotFound)
}

// openBound is how long the open of one of several pools may take, because its disk may hang. It is so short that the programs serve
// the other pools before the kubelet takes the start for failed.
const openBound = 20 * time.Second

// open returns the pool of a member, and opens it if it is not open yet. An open that takes longer than openBound goes on, and until
// it ends the pool is missing. A pool that is the only one is waited for.
func (s *Set) open(ctx context.Context, m *member) (pool.Storage, error) {
	if p := m.pool.Load(); p != nil {
		return *p, nil
	}
	bound := openBound
	if len(s.members) == 1 {
		bound = math.MaxInt64
	}
	name := cmp.Or(m.cfg.Name, pool.DefaultName)
	err := s.opening.Run(ctx, name, bound, func(ctx context.Context) error {
		if m.pool.Load() != nil {
			return nil
		}
		p, err := openPool(context.WithoutCancel(ctx), m.cfg)
		if err == nil {
			m.pool.Store(&p)
		}
		return err
	})
	switch {
	case ctx.Err() != nil && errors.Is(err, wait.ErrNoAnswer):
		return nil, ctx.Err()
	case errors.Is(err, wait.ErrNoAnswer):
		err = fmt.Errorf("%s takes too long to open; look for its disk in the kernel's log: %w: %w", m.cfg.Dir, fault.PoolUnusable, err)
	}
	if err != nil && len(s.members) > 1 {
		err = fmt.Errorf("pool %s: %w", name, err)
	}
	if err != nil {
		return nil, err
	}
	return *m.pool.Load(), nil
}

// Opened returns the pools that were opened, also those that are missing by now.
func (s *Set) Opened() []pool.Storage {
	var pools []pool.Storage
	for _, name := range s.names() {
		if p := s.members[name].pool.Load(); p != nil {
			pools = append(pools, *p)
		}
	}
	return pools
}
