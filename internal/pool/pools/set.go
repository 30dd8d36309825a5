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
	guard   wait.Guard
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
	usable, missing, leftOut := s.all(ctx, nil)
	if len(usable) == 0 {
		return nil, errors.Join(missing, leftOut)
	}
	return s, nil
}

func (s *Set) names() []string { return slices.Sorted(maps.Keys(s.members)) }

// Pools returns the usable pools. The error tells which pools are missing and why; it omits those that the node does not have. Pools
// with the names in except are in neither, and are not touched.
func (s *Set) Pools(ctx context.Context, except ...string) (usable []pool.Storage, missing error) {
	usable, missing, _ = s.all(ctx, except)
	return usable, missing
}

// all is Pools. leftOut tells which pools the node does not have.
func (s *Set) all(ctx context.Context, except []string) (usable []pool.Storage, missing, leftOut error) {
	for _, name := range s.names() {
		if slices.Contains(except, name) {
			continue
		}
		p, err := s.open(ctx, s.members[name])
		if s.members[name].leftOut(err) {
			leftOut = errors.Join(leftOut, err)
			continue
		}
		if err == nil {
			err = s.check(ctx, p)
		}
		if err != nil {
			missing = errors.Join(missing, err)
			continue
		}
		usable = append(usable, p)
	}
	if err := ctx.Err(); err != nil {
		return nil, err, nil
	}
	return usable, missing, leftOut
}

// answerBound is how long a pool may take for a call before it counts as missing, because its disk may hang or another process may
// keep its lock. It is long enough for a volume group that runs other commands meanwhile, and so short that the programs serve the
// other pools before the kubelet takes the start for failed.
const answerBound = 20 * time.Second

// ask runs a call for the pool at a place. A call that takes longer than answerBound goes on, and until it ends later calls with its key
// fail at once. A pool that is the only one stops no other, and is waited for.
func (s *Set) ask(ctx context.Context, key, place string, call func(ctx context.Context) error) error {
	bound := answerBound
	if len(s.members) == 1 {
		bound = math.MaxInt64
	}
	err := s.guard.Run(ctx, key, bound, func(ctx context.Context) error { return call(context.WithoutCancel(ctx)) })
	switch {
	case !errors.Is(err, wait.ErrNoAnswer):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("pool %s does not answer; look for its disk in the kernel's log: %w: %w", place, fault.PoolUnusable, err)
}

// check is the pool's Check.
func (s *Set) check(ctx context.Context, p pool.Storage) error {
	return s.ask(ctx, "check "+p.Name(), p.Location(), p.Check)
}

// read reads a pool under its lock.
func read[T any](ctx context.Context, s *Set, p pool.Storage, call func(pool.Storage, context.Context) (T, error)) (T, error) {
	answer := make(chan T, 1) // not a variable: a call that has lost its caller still sets it
	err := s.ask(ctx, "read "+p.Name(), p.Location(), func(ctx context.Context) error {
		got, err := call(p, ctx)
		answer <- got
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return <-answer, nil
}

// List is the pool's List or ListSnapshots.
func (s *Set) List(ctx context.Context, p pool.Storage, list func(pool.Storage, context.Context) ([]pool.Entry, error)) ([]pool.Entry, error) {
	return read(ctx, s, p, list)
}

// Usage returns what a pool holds.
func (s *Set) Usage(ctx context.Context, p pool.Storage) (pool.Usage, error) {
	return read(ctx, s, p, pool.Storage.Usage)
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
	return s.find(ctx, name, pool.Storage.List, pool.Storage.FindByName)
}

// FindSnapshot is FindByName for a snapshot.
func (s *Set) FindSnapshot(ctx context.Context, name string) (pool.Storage, pool.Entry, error) {
	return s.find(ctx, name, pool.Storage.ListSnapshots, pool.Storage.FindSnapshot)
}

// CheckOthers returns fault.Conflict if another pool than p has a volume with this name, because the class of the request has changed
// its pool. Each pool checks its own names. A pool that is missing does not affect the others.
func (s *Set) CheckOthers(ctx context.Context, p pool.Storage, name string) error {
	for _, other := range s.Opened() {
		if other == p {
			continue
		}
		entries, err := read(ctx, s, other, pool.Storage.List)
		if err != nil {
			continue
		}
		for _, e := range pool.Named(entries, name) {
			if e.Kind == pool.Whole || e.Kind == pool.UnderWay {
				return fmt.Errorf("the name belongs to volume %s: %w", other.Handle(e.ID), fault.Conflict)
			}
		}
	}
	return nil
}

// find lists each pool before it looks for the entry, which may wait for its zeroing. A pool that cannot be listed is missing.
func (s *Set) find(ctx context.Context, name string, list func(pool.Storage, context.Context) ([]pool.Entry, error),
	in func(pool.Storage, context.Context, string) (pool.Entry, error),
) (holder pool.Storage, found pool.Entry, err error) {
	usable, missing := s.Pools(ctx)
	for _, p := range usable {
		entries, err := read(ctx, s, p, list)
		if err != nil {
			missing = errors.Join(missing, err)
			continue
		}
		if len(pool.Named(entries, name)) == 0 {
			continue
		}
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

// open returns the pool of a member, and opens it if it is not open yet.
func (s *Set) open(ctx context.Context, m *member) (pool.Storage, error) {
	if p := m.pool.Load(); p != nil {
		return *p, nil
	}
	name := cmp.Or(m.cfg.Name, pool.DefaultName)
	err := s.ask(ctx, "open "+name, m.cfg.Dir, func(ctx context.Context) error {
		if m.pool.Load() != nil {
			return nil
		}
		p, err := openPool(ctx, m.cfg)
		if err == nil {
			m.pool.Store(&p)
		}
		return err
	})
	if err != nil && ctx.Err() == nil && len(s.members) > 1 {
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
