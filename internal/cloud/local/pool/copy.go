package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// reflinkFreeze is how long a filesystem must stay frozen for reflinks at the most.
const reflinkFreeze = 5 * time.Second

// mostTries is how often a source may come into use just before it is copied.
const mostTries = 5

// errCameIntoUse: a source that was not in use is, so it should be frozen first.
var errCameIntoUse = errors.New("it came into use meanwhile")

// source is what is copied: an image that nobody writes to, or that is frozen, or, for a reflink, one
// whose present state is good enough.
type source struct {
	item   item
	record Record
	// file carries a lock for as long as the copy needs it: the exclusive one on a volume, so that
	// nobody attaches it, the shared one on a snapshot, so that nobody removes it. None if used.
	file *os.File
	used bool
	// freeze is set if used and frozen; otherwise unfrozen says why not.
	freeze   *Freeze
	unfrozen error
}

// making is a set of volumes or snapshots that come to be at one moment, each from the source at the
// same place of the list.
type making struct {
	records []Record
	sources []source
	// group is set for a group of snapshots.
	group ID
	// fill brings an image whose content is there to its full size, and makes it durable.
	fill func(ctx context.Context, f *os.File) error
}

// copyFrom makes what plan says of the given sources, if the name is free on that shelf. plan runs
// under the pool's lock, with the sources open, and admits it.
func (p *Pool) copyFrom(ctx context.Context, s shelf, name string, from []item, plan func([]source) (*making, error)) ([]Record, error) {
	for range mostTries {
		// Whoever repeats a call gets this answer before anything is frozen or found to be busy.
		entries, err := p.list(ctx, s)
		if err == nil {
			err = p.checkFree(entries, s, name)
		}
		if err != nil {
			return nil, err
		}
		freezes, err := p.freezeUsed(ctx, from)
		if err != nil {
			return nil, err
		}
		made, err := p.copyOnce(ctx, from, freezes, plan)
		if !errors.Is(err, errCameIntoUse) {
			return made, err
		}
	}
	return nil, fmt.Errorf("copy %s: it is attached and detached all the time: %w", p.name(from[0]), fault.Busy)
}

// thaw is the answer of freezeUsed about one source in use.
type thaw struct {
	freeze *Freeze
	err    error
}

// freezeUsed asks for a freeze of each volume that is in use, of all at once. What refuses is not an
// error here: a reflink does without.
func (p *Pool) freezeUsed(ctx context.Context, from []item) (map[ID]thaw, error) {
	d := reflinkFreeze
	if !p.reflink {
		d = MostFreeze
	}
	var mu sync.Mutex
	var asked sync.WaitGroup
	freezes := map[ID]thaw{}
	for _, it := range from {
		if it.isSnapshot() || !p.looksUsed(it) {
			continue
		}
		asked.Go(func() {
			f, err := p.RequestFreeze(ctx, it.id, d)
			mu.Lock()
			defer mu.Unlock()
			freezes[it.id] = thaw{f, err}
		})
	}
	asked.Wait()
	for _, t := range freezes {
		// Another copy has it frozen at this moment, or the caller went away.
		if t.err != nil && fault.Of(t.err) != fault.Precondition {
			release(freezes)
			return nil, t.err
		}
	}
	return freezes, nil
}

func release(freezes map[ID]thaw) {
	for _, t := range freezes {
		if t.freeze != nil {
			t.freeze.Release()
		}
	}
}

// looksUsed is a first guess without the pool's lock, which nobody may hold while a freeze is waited for.
func (p *Pool) looksUsed(it item) bool {
	f, user, err := p.lockImage(it)
	if f != nil {
		_ = f.Close()
	}
	return err == nil && user != ""
}

func (p *Pool) copyOnce(ctx context.Context, from []item, freezes map[ID]thaw, plan func([]source) (*making, error)) (made []Record, err error) {
	handedOver := false
	var sources []source
	defer func() {
		if !handedOver {
			release(freezes)
			closeAll(sources)
		}
	}()
	unlock, err := p.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { unlock() }()
	for _, it := range from {
		src, err := p.openSource(it, freezes)
		if err != nil {
			return nil, err
		}
		sources = append(sources, src)
	}
	m, err := plan(sources)
	if err != nil {
		return nil, err
	}
	if p.reflink {
		return m.records, p.reflinkAll(ctx, m, freezes)
	}
	job, err := p.startCopy(m, freezes)
	if err != nil {
		return nil, err
	}
	handedOver = true
	unlock()
	unlock = func() {}
	return job.wait(ctx, p)
}

func closeAll(sources []source) {
	for _, s := range sources {
		_ = s.file.Close()
	}
}

// openSource opens an image to copy from it. Under the pool's lock, so nothing is attached meanwhile.
func (p *Pool) openSource(it item, freezes map[ID]thaw) (source, error) {
	e, err := p.entry(it)
	if err != nil {
		return source{}, err
	}
	if e.Kind != Whole {
		return source{}, p.refuse(e)
	}
	src := source{item: it, record: e.Record}
	if it.isSnapshot() {
		src.file, err = p.openShared(it)
		return src, err
	}
	var user string
	if src.file, user, err = p.lockImage(it); err != nil || user == "" {
		return src, err
	}
	src.used = true
	t, asked := freezes[it.id]
	switch src.freeze, src.unfrozen = t.freeze, t.err; {
	case !asked:
		return source{}, fmt.Errorf("copy %s: %w", p.name(it), errCameIntoUse)
	case t.err != nil && !p.reflink:
		return source{}, fmt.Errorf("copy %s, which is in use by %s: stop the workload, or use a pool on xfs or btrfs: %w", p.name(it), user, t.err)
	}
	src.file, err = p.openToRead(it)
	return src, err
}

func (p *Pool) openToRead(it item) (*os.File, error) {
	f, err := os.OpenFile(p.file(it, imageExt), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p.name(it), kindOf(err))
	}
	return f, nil
}

func (p *Pool) openShared(it item) (*os.File, error) {
	f, err := p.openToRead(it)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_SH); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s is being removed, or a foreign program has locked it: %w: %w", p.name(it), fault.Busy, err)
	}
	return f, nil
}

// reflinkAll makes everything in one go, under the pool's lock: records that say "creating", then all
// images at one instant, then their last shape, then the records that say "ready", those of a group
// by one commit. Each is durable before the next, as in build.
func (p *Pool) reflinkAll(ctx context.Context, m *making, freezes map[ID]thaw) (err error) {
	images := make([]*os.File, 0, len(m.records))
	defer func() {
		for _, f := range images {
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			// The commit goes first: with it, what is still there of the group would count.
			if m.group != "" {
				err = errors.Join(err, p.disk.remove(p.file(ofSnapshot(m.group), commitExt)))
			}
			err = p.takeBack(err, m.records...)
		}
	}()
	for i, r := range m.records {
		if err := p.writeRecord(r.item(), r); err != nil {
			return err
		}
		f, err := p.disk.emptyImage(p.file(m.records[i].item(), imageExt))
		if err != nil {
			return err
		}
		images = append(images, f)
	}
	if err := p.cloneAtOnce(m, images); err != nil {
		return err
	}
	release(freezes) // from here on the workload may go on
	for _, f := range images {
		if err := m.fill(ctx, f); err != nil {
			return err
		}
	}
	if m.group != "" {
		if err := p.commit(m.group); err != nil {
			return err
		}
	}
	return p.readyAll(m)
}

func (p *Pool) cloneAtOnce(m *making, images []*os.File) error {
	for i, src := range m.sources {
		p.disk.step("clone")
		err := retryEINTR(func() error { return unix.IoctlFileClone(int(images[i].Fd()), int(src.file.Fd())) })
		if err == nil {
			// A growth that was interrupted left more than the volume has.
			p.disk.step("truncate image")
			err = retryEINTR(func() error { return images[i].Truncate(src.record.Size) })
		}
		if err != nil {
			return fmt.Errorf("clone %s: %w", p.name(src.item), err)
		}
	}
	for _, src := range m.sources {
		if src.freeze != nil {
			if err := src.freeze.Holds(); err != nil {
				return err
			}
		}
	}
	return nil
}

// readyAll writes the final records. Once a group is committed it exists, whatever becomes of these.
func (p *Pool) readyAll(m *making) error {
	for i := range m.records {
		if err := p.ready(&m.records[i]); err != nil && m.group == "" {
			return err
		}
	}
	if m.group != "" {
		p.finishCommits([]ID{m.group}, p.entriesOf(m.records))
	}
	return nil
}

func (p *Pool) entriesOf(records []Record) []Entry {
	var entries []Entry
	for _, r := range records {
		entries = append(entries, Entry{ID: r.ID, Snapshot: r.item().isSnapshot(), Record: r})
	}
	return entries
}
