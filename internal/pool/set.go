package pool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Set is the pools of one node. Each volume and each snapshot is in one of them: ids are random, and claimName
// keeps names apart.
//
// A pool that cannot be used, because its disk is not mounted or its configuration was removed, is missing. The
// others serve their volumes meanwhile. A call that may concern the missing pool opens it again, or returns why it
// cannot be used.
//
// Nodes have the same configuration and different disks. So a pool with a name is on a filesystem of its own. Where
// none is mounted at its folder, and none ever was, the node does not have the pool: it is absent, not missing.
type Set struct {
	members []*member
	// opening admits one goroutine at a time. It is a channel, so that waiting for it ends with the context.
	opening chan struct{}
}

// member is one pool of a set.
type member struct {
	cfg  Config
	pool atomic.Pointer[Storage] // nil until it is open
}

// OpenSet opens the pools of one node, which have different names and folders. It fails if none can be used.
func OpenSet(ctx context.Context, configs ...Config) (*Set, error) {
	s := &Set{opening: make(chan struct{}, 1)}
	for _, cfg := range configs {
		s.members = append(s.members, &member{cfg: cfg})
	}
	usable, err := s.Pools(ctx)
	for _, m := range s.members {
		if _, openErr := s.open(ctx, m); errors.Is(openErr, fault.NotFound) {
			err = errors.Join(err, openErr)
		}
	}
	if len(usable) == 0 {
		return nil, err
	}
	return s, nil
}

// Pools returns the pools that can be used. The error says which are missing, and why. It leaves out absent ones.
func (s *Set) Pools(ctx context.Context) (usable []Storage, missing error) {
	var errs []error
	for _, m := range s.members {
		p, err := s.open(ctx, m)
		if errors.Is(err, fault.NotFound) {
			continue
		}
		if err == nil {
			err = p.Check(ctx)
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
	return usable, errors.Join(append(errs, s.checkConfigured())...)
}

// checkConfigured returns an error if an id file is that of a pool that the set does not have. A pool that was renamed
// has two files with one id.
func (s *Set) checkConfigured() error {
	var errs []error
	members, folders := map[string]bool{}, map[string]bool{}
	for _, m := range s.members {
		if m.cfg.IDFile == "" {
			continue
		}
		n, err := readIDFile(m.cfg.IDFile)
		if m.pool.Load() != nil { // else the attempt to open it has said this
			errs = append(errs, err)
		}
		members[n.ID], folders[filepath.Dir(m.cfg.IDFile)] = true, true
	}
	for folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "pool-id*"))
		errs = append(errs, err)
		for _, file := range files {
			if strings.HasSuffix(file, newExt) || slices.ContainsFunc(s.members, func(m *member) bool { return m.cfg.IDFile == file }) {
				continue
			}
			n, err := readIDFile(file)
			if err == nil && n.ID != "" && !members[n.ID] {
				err = fmt.Errorf("the pool with the id %s, last in %s, is not configured; start with it in --local-pool, or if it is gone for good, remove %s: %w",
					n.ID, n.Dir, file, fault.PoolUnusable)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Check returns an error while a pool is missing.
func (s *Set) Check(ctx context.Context) error {
	_, missing := s.Pools(ctx)
	return missing
}

// Close ends the work of this process in volume groups; see GroupPool.Close.
func (s *Set) Close(ctx context.Context) error {
	var errs []error
	for _, p := range s.opened() {
		if g, ok := p.(*GroupPool); ok {
			errs = append(errs, g.Close(ctx))
		}
	}
	return errors.Join(errs...)
}

// Named returns the pool with this name. fault.NotFound when none has the name or the pool is absent.
func (s *Set) Named(ctx context.Context, name string) (Storage, error) {
	var names []string
	for _, m := range s.members {
		if m.cfg.Name == name {
			return s.open(ctx, m)
		}
		names = append(names, nameForMessage(m.cfg.Name))
	}
	return nil, fmt.Errorf("there is no pool %s on node %s, there is %s: %w",
		nameForMessage(name), s.members[0].cfg.Node, strings.Join(names, ", "), fault.NotFound)
}

// WithVolume returns the pool that has the volume with this id. fault.NotFound when none has it;
// fault.Precondition when none of the usable pools has it and one is missing.
func (s *Set) WithVolume(ctx context.Context, id ID) (Storage, error) {
	return s.with(ctx, volumeRef(id))
}

// WithSnapshot is WithVolume for a snapshot.
func (s *Set) WithSnapshot(ctx context.Context, id ID) (Storage, error) {
	return s.with(ctx, snapshotRef(id))
}

func (s *Set) with(ctx context.Context, ref objectRef) (Storage, error) {
	if len(s.members) == 1 && s.checkConfigured() == nil {
		return s.open(ctx, s.members[0])
	}
	if p, err := holder(ctx, s.opened(), ref); p != nil || err != nil {
		return p, err
	}
	usable, missing := s.Pools(ctx)
	if p, err := holder(ctx, usable, ref); p != nil || err != nil {
		return p, err
	}
	what := "volume " + string(ref.id)
	if ref.isSnapshot() {
		what = "snapshot " + string(ref.id)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case missing != nil:
		return nil, fmt.Errorf("%s is in no pool that can be used: %w: %w", what, fault.PoolUnusable, missing)
	}
	return nil, fmt.Errorf("%s is in no pool of this node: %w", what, fault.NotFound)
}

// FindByName returns the volume with this name, and its pool; see Pool.FindByName. fault.Precondition when
// none of the usable pools has the name and one is missing.
func (s *Set) FindByName(ctx context.Context, name string) (Storage, Entry, error) {
	return s.find(ctx, volumes, name)
}

// FindSnapshot is FindByName for a snapshot.
func (s *Set) FindSnapshot(ctx context.Context, name string) (Storage, Entry, error) {
	return s.find(ctx, snapshots, name)
}

func (s *Set) find(ctx context.Context, in folder, name string) (Storage, Entry, error) {
	usable, missing := s.Pools(ctx)
	for _, p := range usable {
		if e, err := p.find(ctx, in, name); !errors.Is(err, fault.NotFound) {
			return p, e, err
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, Entry{}, ctx.Err()
	case missing != nil:
		return nil, Entry{}, fmt.Errorf("the name %q is in no pool that can be used: %w: %w", name, fault.PoolUnusable, missing)
	}
	return nil, Entry{}, fmt.Errorf("no pool has one of its %s under the name %q: %w", in, name, fault.NotFound)
}

// open returns the pool of a member, and opens it if it is not open yet. fault.NotFound when it is absent.
func (s *Set) open(ctx context.Context, m *member) (Storage, error) {
	if p := m.pool.Load(); p != nil {
		return *p, nil
	}
	select {
	case s.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.opening }()
	if p := m.pool.Load(); p != nil {
		return *p, nil
	}
	if err := m.cfg.checkThere(); err != nil {
		return nil, err
	}
	p, err := openStorage(ctx, m.cfg, s.opened)
	if err != nil && len(s.members) > 1 {
		err = fmt.Errorf("pool %s: %w", nameForMessage(m.cfg.Name), err)
	}
	if err != nil {
		return nil, err
	}
	m.pool.Store(&p)
	return p, nil
}

// checkThere returns fault.NotFound if the pool is absent.
func (c Config) checkThere() error {
	if c.Name == "" || c.MustExist || strings.HasPrefix(c.Dir, groupPrefix) { // openGroup tells for itself
		return nil
	}
	if _, err := os.Lstat(c.IDFile); err == nil {
		return nil
	}
	whole, err := isWholeFilesystem(c.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("pool %s: %w", c.Name, kindOf(err))
	}
	if !whole {
		return fmt.Errorf("node %s has no pool %s: no filesystem is mounted at %s: %w", c.Node, c.Name, c.Dir, fault.NotFound)
	}
	return nil
}

// opened returns the pools that were opened, also those that are missing by now.
func (s *Set) opened() []Storage {
	var pools []Storage
	for _, m := range s.members {
		if p := m.pool.Load(); p != nil {
			pools = append(pools, *p)
		}
	}
	return pools
}

// holder returns the pool that has this object, or nil. A pool that cannot be read hides no other; the error says which
// cannot. Pools of files answer first, without a program, then volume groups, all at once: one whose disk hangs hides no other.
func holder(ctx context.Context, pools []Storage, ref objectRef) (Storage, error) {
	var errs []error
	var groups []Storage
	for _, p := range pools {
		if _, slow := p.(*GroupPool); slow {
			groups = append(groups, p)
			continue
		}
		found, err := p.holds(ctx, ref)
		if found {
			return p, nil
		}
		errs = append(errs, err)
	}
	type answer struct {
		holder Storage // nil: the pool does not have it
		err    error
	}
	answers := make(chan answer, len(groups))
	for _, p := range groups {
		go func() {
			found, err := p.holds(ctx, ref)
			if !found {
				p = nil
			}
			answers <- answer{p, err}
		}()
	}
	for range groups {
		a := <-answers
		if a.holder != nil {
			return a.holder, nil
		}
		errs = append(errs, a.err)
	}
	return nil, errors.Join(errs...)
}

// holds reports whether the pool has a file of this object. It reads without the lock: an object has a record,
// an image or a tombstone from the first step of its create to the last of its removal.
func (p *Pool) holds(_ context.Context, ref objectRef) (bool, error) {
	for _, ext := range []string{recordExt, imageExt, tombstoneExt} {
		_, err := os.Lstat(p.file(ref, ext))
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("read pool %s: %w", p.dir, kindOf(err))
		}
	}
	return false, nil
}

// namesBound is how long a create waits for the names of the other pools.
const namesBound = 20 * time.Second

// claimName writes the first record of an object, and returns fault.Conflict if an object of another pool has its
// name. It writes before it reads: of two creates of one name in two pools at least one reads the record of the
// other, so both never succeed. No lock is held on two pools at once.
func (p *Pool) claimName(r Record) error {
	if err := p.writeRecord(r.ref(), r); err != nil {
		return err
	}
	return checkOtherNames(p, p.others(), r)
}

// checkOtherNames returns fault.Conflict if an object of another pool has the name of this record. A pool that is
// missing is not read. The wait for one whose disk hangs has a bound of its own: the caller holds the lock of p, and the call
// that it works for may have ended.
func checkOtherNames(p Storage, others []Storage, r Record) error {
	ctx, cancel := context.WithTimeout(context.Background(), namesBound)
	defer cancel()
	for _, other := range others {
		if other == p {
			continue
		}
		if err := other.checkIdentity(ctx); err != nil {
			if ctx.Err() != nil {
				return err
			}
			continue
		}
		id, err := other.idOf(ctx, r.ref().folder, r.Name)
		if err != nil {
			return err
		}
		if id != "" {
			return fmt.Errorf("the name %q belongs to %s in the pool %s: %w",
				r.Name, nameOf(other.Node(), objectRef{r.ref().folder, id}), other.Location(), fault.Conflict)
		}
	}
	return nil
}

// idOf returns the id of the object whose record has this name, or "". It reads without the lock, because
// records are replaced atomically.
func (p *Pool) idOf(_ context.Context, in folder, name string) (ID, error) {
	files, err := os.ReadDir(p.path(string(in)))
	if err != nil {
		return "", fmt.Errorf("read pool %s: %w", p.dir, kindOf(err))
	}
	for _, f := range files {
		id, ext := splitName(f.Name())
		if ext != recordExt {
			continue
		}
		ref := objectRef{in, id}
		data, err := readFile(p.file(ref, recordExt))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since
		}
		if err != nil {
			return "", fmt.Errorf("read the record of %s: %w", p.name(ref), kindOf(err))
		}
		// A damaged record has no name, that of a newer version has.
		if r, _ := decodeRecord(ref, data); r.Name == name {
			return id, nil
		}
	}
	return "", nil
}

var poolName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// CheckName refuses what is not the name of a pool: a DNS label.
func CheckName(name string) error {
	if !poolName.MatchString(name) {
		return fmt.Errorf("the pool's name %.80q is not a DNS label (up to 63 lower-case letters, digits and '-'): %w", name, fault.InvalidArgument)
	}
	return nil
}

func nameForMessage(name string) string {
	if name == "" {
		return "(unnamed)"
	}
	return name
}
