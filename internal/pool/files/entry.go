package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

func (p *Pool) list(ctx context.Context, in pool.Folder) ([]pool.Entry, error) {
	unlock, err := p.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return p.recoverFolder(in)
}

func (p *Pool) get(ctx context.Context, ref pool.Ref) (pool.Entry, error) {
	unlock, err := p.enter(ctx)
	if err != nil {
		return pool.Entry{}, err
	}
	defer unlock()
	return p.entry(ref)
}

// recover completes or undoes every change that a killed process interrupted, then returns all entries.
// The caller holds the lock, so no change has a live process.
func (p *Pool) recover() ([]pool.Entry, error) {
	of, err := p.recoverFolder(pool.Volumes)
	if err != nil {
		return nil, err
	}
	more, err := p.recoverFolder(pool.Snapshots)
	return append(of, more...), err
}

func (p *Pool) recoverFolder(in pool.Folder) ([]pool.Entry, error) {
	files, err := os.ReadDir(p.path(string(in)))
	if err != nil {
		return nil, fmt.Errorf("read pool %s: %w", p.dir, pool.KindOf(err))
	}
	var entries []pool.Entry
	ids := map[pool.ID]bool{}
	for _, f := range files {
		switch id, ext := splitName(f.Name()); ext {
		case imageExt, recordExt, tombstoneExt:
			ids[id] = true
		case recordExt + newExt:
			// A temporary file of replace is never the only copy.
			p.disk.discard(p.path(string(in), f.Name()))
		default:
			e := pool.Entry{Kind: pool.Unknown, Snapshot: in == pool.Snapshots, File: f.Name(), Problem: "not made by this program"}
			e.Size, e.Allocated, _ = sizes(p.path(string(in), f.Name()))
			entries = append(entries, e)
		}
	}
	for id := range ids {
		e, err := p.entry(pool.Ref{Folder: in, ID: id})
		switch {
		case errors.Is(err, fault.NotFound):
			continue
		case err != nil:
			// A failed removal is reported as this entry and does not block the others.
			e = p.failedRemoval(pool.Ref{Folder: in, ID: id}, err)
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b pool.Entry) int {
		if (a.ID == "") != (b.ID == "") {
			return strings.Compare(string(b.ID), string(a.ID))
		}
		return cmp.Or(strings.Compare(string(a.ID), string(b.ID)), strings.Compare(a.File, b.File))
	})
	return entries, nil
}

// splitName parses the name of a file of the pool; ext is empty for any other name.
func splitName(name string) (id pool.ID, ext string) {
	stem, ext, _ := strings.Cut(name, ".")
	id, err := pool.ParseID(stem)
	if err != nil {
		return "", ""
	}
	switch ext = "." + ext; ext {
	case imageExt, recordExt, tombstoneExt, recordExt + newExt:
		return id, ext
	}
	return "", ""
}

// entry returns the entry of one object, after recovering it. The caller holds the lock.
func (p *Pool) entry(ref pool.Ref) (pool.Entry, error) {
	if _, err := os.Lstat(p.file(ref, tombstoneExt)); err == nil {
		// delete has checked that it is unused before it wrote the tombstone.
		return pool.Entry{}, p.removeIncomplete(ref)
	}
	e := pool.Entry{ID: ref.ID, Snapshot: ref.IsSnapshot(), File: ref.ID.ImageName()}
	var imageErr error
	e.Size, e.Allocated, imageErr = sizes(p.file(ref, imageExt))
	noImage := errors.Is(imageErr, fs.ErrNotExist)

	data, err := readFile(p.file(ref, recordExt))
	switch {
	case errors.Is(err, fs.ErrNotExist) && noImage:
		return pool.Entry{}, fmt.Errorf("%s: %w", p.Describe(ref), fault.NotFound)
	case errors.Is(err, fs.ErrNotExist):
		e.Kind, e.Problem = pool.NoRecord, "its record "+string(ref.ID)+recordExt+" is missing"
		if imageErr != nil {
			e.Kind, e.Problem = pool.Damaged, imageErr.Error()
		}
		return e, nil
	case err != nil:
		var errno unix.Errno // without one the file is not a record, and stays so
		e.Kind, e.Problem, e.Unread = pool.Damaged, err.Error(), errors.As(err, &errno)
		return e, nil
	}
	r, err := decodeRecord(ref, data)
	if err != nil {
		e.Kind, e.Problem = pool.Damaged, fmt.Sprintf("record %s%s: %v", ref.ID, recordExt, err)
		if errors.Is(err, errNewer) {
			e.Kind, e.Record = pool.Newer, r
		}
		return e, nil
	}
	if r.State == pool.Creating {
		return pool.Entry{}, p.removeIncomplete(ref) // the create has not returned, so no caller has the id
	}
	p.undoGrowth(ref, &r)
	// An undone growth has changed them.
	e.Size, e.Allocated, imageErr = sizes(p.file(ref, imageExt))
	classify(&e, r, noImage, imageErr)
	return e, nil
}

// undoGrowth undoes a growth that a killed process interrupted. No device has had the new size yet, so
// the truncation loses no data. If it fails, the reservation remains in the record and Use continues the growth.
func (p *Pool) undoGrowth(ref pool.Ref, r *pool.Record) {
	if r.GrowTo == 0 {
		return
	}
	f, err := os.OpenFile(p.file(ref, imageExt), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err != nil || st.Size() < r.Size || st.Size() > r.GrowTo {
		return // the entry becomes Damaged
	}
	undone := *r
	undone.GrowTo = 0
	// The record is written last: until then its GrowTo explains a longer image.
	if p.disk.truncate(f, r.Size) == nil && p.writeRecord(ref, undone) == nil {
		*r = undone
	}
}

// removeIncomplete removes the files of an interrupted create or delete. It always returns an error:
// fault.NotFound once all files are removed.
func (p *Pool) removeIncomplete(ref pool.Ref) error {
	if err := p.erase(ref); err != nil {
		return fmt.Errorf("remove the files of the interrupted create or delete of %s: %w", p.Describe(ref), pool.KindOf(err))
	}
	return fmt.Errorf("%s: %w", p.Describe(ref), fault.NotFound)
}

// failedRemoval returns the entry of an interrupted create or delete whose files could not be removed.
func (p *Pool) failedRemoval(ref pool.Ref, err error) pool.Entry {
	e := pool.Entry{ID: ref.ID, Kind: pool.Damaged, Snapshot: ref.IsSnapshot(), File: ref.ID.ImageName(), Problem: err.Error()}
	e.Size, e.Allocated, _ = sizes(p.file(ref, imageExt))
	return e
}

// classify compares a good record with the image.
func classify(e *pool.Entry, r pool.Record, noImage bool, imageErr error) {
	e.Record = r
	switch {
	case noImage:
		e.Kind, e.Problem = pool.NoImage, "its image "+e.File+" is missing"
	case imageErr != nil:
		e.Kind, e.Problem = pool.Damaged, imageErr.Error()
	case e.Size < r.Size || e.Size > reservedBy(r):
		e.Kind, e.Problem = pool.Damaged, fmt.Sprintf("the image has %d bytes, its record says %d", e.Size, r.Size)
	default:
		e.Kind = pool.Whole
	}
}

// erase removes the files of an object. The image is removed first, and durably: otherwise a power loss could
// leave an image without a record, an orphan that occupies its space.
func (p *Pool) erase(ref pool.Ref) error {
	if err := p.disk.removeImage(p.file(ref, imageExt)); err != nil {
		return err
	}
	return errors.Join(p.disk.remove(p.file(ref, recordExt)), p.disk.remove(p.file(ref, tombstoneExt)))
}

func (p *Pool) writeRecord(ref pool.Ref, r pool.Record) error {
	data, err := encode(r)
	if err != nil {
		return err
	}
	return p.disk.replace(p.file(ref, recordExt), data)
}
