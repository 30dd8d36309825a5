package pool

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
)

// Kind is the state of an entry.
type Kind string

// The kinds. Everything but Whole, UnderWay and Newer is an orphan: it is reported, and removed only by id.
const (
	// Whole is a volume or a snapshot with its record and its image.
	Whole Kind = "volume"
	// UnderWay is a volume that a live process makes read as zeros.
	UnderWay Kind = "create under way"
	// Unfinished is a volume that an interrupted create has left, which the next create for its name continues. Its id was not returned.
	Unfinished Kind = "unfinished create"
	// NoRecord is an image whose record is missing.
	NoRecord Kind = "image without record"
	// NoImage is a record whose image is missing.
	NoImage Kind = "record without image"
	// Newer is an image with a record that only a newer version of this program can read.
	Newer Kind = "of a newer version"
	// Damaged is a record that cannot be read, or an image that does not fit it.
	Damaged Kind = "damaged"
	// Unknown is a file that no version of this program creates. The pool never removes it.
	Unknown Kind = "unknown file"
)

// Entry is a volume, a snapshot, or an orphan in the pool.
type Entry struct {
	// ID is empty for an Unknown file.
	ID   ID
	Kind Kind
	// Snapshot tells a snapshot from a volume.
	Snapshot bool
	// File is the base name of the image, or of the unknown file.
	File string
	// Record is set for Whole, UnderWay and NoImage, and where only the image is Damaged; for Newer it
	// has only the name.
	Record Record
	// Size and Allocated are the image's length and how many bytes of it are allocated.
	Size, Allocated int64
	// Problem describes what is wrong with an orphan.
	Problem string
}

func (e Entry) ref() objectRef {
	if e.Snapshot {
		return snapshotRef(e.ID)
	}
	return volumeRef(e.ID)
}

func (p *Pool) list(ctx context.Context, in folder) ([]Entry, error) {
	unlock, err := p.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return p.recoverFolder(in)
}

func (p *Pool) get(ctx context.Context, ref objectRef) (Entry, error) {
	unlock, err := p.enter(ctx)
	if err != nil {
		return Entry{}, err
	}
	defer unlock()
	return p.entry(ref)
}

// recover completes or undoes every change that a killed process interrupted, then returns all entries.
// The caller holds the lock, so no change has a live process.
func (p *Pool) recover() ([]Entry, error) {
	of, err := p.recoverFolder(volumes)
	if err != nil {
		return nil, err
	}
	more, err := p.recoverFolder(snapshots)
	return append(of, more...), err
}

func (p *Pool) recoverFolder(in folder) ([]Entry, error) {
	files, err := os.ReadDir(p.path(string(in)))
	if err != nil {
		return nil, fmt.Errorf("read pool %s: %w", p.dir, kindOf(err))
	}
	var entries []Entry
	ids := map[ID]bool{}
	for _, f := range files {
		switch id, ext := splitName(f.Name()); ext {
		case imageExt, recordExt, tombstoneExt:
			ids[id] = true
		case recordExt + newExt:
			// A temporary file of replace is never the only copy.
			p.disk.discard(p.path(string(in), f.Name()))
		default:
			entries = append(entries, Entry{Kind: Unknown, Snapshot: in == snapshots, File: f.Name(), Problem: "not made by this program"})
		}
	}
	for id := range ids {
		e, err := p.entry(objectRef{in, id})
		switch {
		case errors.Is(err, fault.NotFound):
			continue
		case err != nil:
			// A failed removal is reported as this entry and does not block the others.
			e = p.failedRemoval(objectRef{in, id}, err)
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b Entry) int {
		if (a.ID == "") != (b.ID == "") {
			return strings.Compare(string(b.ID), string(a.ID))
		}
		return cmp.Or(strings.Compare(string(a.ID), string(b.ID)), strings.Compare(a.File, b.File))
	})
	return entries, nil
}

// splitName parses the name of a file of the pool; ext is empty for any other name.
func splitName(name string) (id ID, ext string) {
	if len(name) < idLen {
		return "", ""
	}
	id, err := ParseID(name[:idLen])
	if err != nil {
		return "", ""
	}
	switch ext = name[idLen:]; ext {
	case imageExt, recordExt, tombstoneExt, recordExt + newExt:
		return id, ext
	}
	return "", ""
}

// entry returns the entry of one object, after recovering it. The caller holds the lock.
func (p *Pool) entry(ref objectRef) (Entry, error) {
	if _, err := os.Lstat(p.file(ref, tombstoneExt)); err == nil {
		// delete has checked that it is unused before it wrote the tombstone.
		return Entry{}, p.removeIncomplete(ref)
	}
	e := Entry{ID: ref.id, Snapshot: ref.isSnapshot(), File: ref.id.ImageName()}
	var imageErr error
	e.Size, e.Allocated, imageErr = sizes(p.file(ref, imageExt))
	noImage := errors.Is(imageErr, fs.ErrNotExist)

	data, err := readFile(p.file(ref, recordExt))
	switch {
	case errors.Is(err, fs.ErrNotExist) && noImage:
		return Entry{}, fmt.Errorf("%s: %w", p.name(ref), fault.NotFound)
	case errors.Is(err, fs.ErrNotExist):
		e.Kind, e.Problem = NoRecord, "its record "+string(ref.id)+recordExt+" is missing"
		if imageErr != nil {
			e.Kind, e.Problem = Damaged, imageErr.Error()
		}
		return e, nil
	case err != nil:
		e.Kind, e.Problem = Damaged, err.Error()
		return e, nil
	}
	r, err := decodeRecord(ref, data)
	if err != nil {
		e.Kind, e.Problem = Damaged, fmt.Sprintf("record %s%s: %v", ref.id, recordExt, err)
		if errors.Is(err, errNewer) {
			e.Kind, e.Record = Newer, r
		}
		return e, nil
	}
	if r.State == Creating {
		return Entry{}, p.removeIncomplete(ref) // the create has not returned, so no caller has the id
	}
	p.undoGrowth(ref, &r)
	// An undone growth has changed them.
	e.Size, e.Allocated, imageErr = sizes(p.file(ref, imageExt))
	e.classify(r, noImage, imageErr)
	return e, nil
}

// undoGrowth undoes a growth that a killed process interrupted. No device has had the new size yet, so
// the truncation loses no data. If it fails, the reservation remains in the record and Use continues the growth.
func (p *Pool) undoGrowth(ref objectRef, r *Record) {
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
func (p *Pool) removeIncomplete(ref objectRef) error {
	if err := p.erase(ref); err != nil {
		return fmt.Errorf("remove the files of the interrupted create or delete of %s: %w", p.name(ref), kindOf(err))
	}
	return fmt.Errorf("%s: %w", p.name(ref), fault.NotFound)
}

// failedRemoval returns the entry of an interrupted create or delete whose files could not be removed.
func (p *Pool) failedRemoval(ref objectRef, err error) Entry {
	e := Entry{ID: ref.id, Kind: Damaged, Snapshot: ref.isSnapshot(), File: ref.id.ImageName(), Problem: err.Error()}
	e.Size, e.Allocated, _ = sizes(p.file(ref, imageExt))
	return e
}

// classify compares a good record with the image.
func (e *Entry) classify(r Record, noImage bool, imageErr error) {
	e.Record = r
	switch {
	case noImage:
		e.Kind, e.Problem = NoImage, "its image "+e.File+" is missing"
	case imageErr != nil:
		e.Kind, e.Problem = Damaged, imageErr.Error()
	case e.Size < r.Size || e.Size > r.reserved():
		e.Kind, e.Problem = Damaged, fmt.Sprintf("the image has %d bytes, its record says %d", e.Size, r.Size)
	default:
		e.Kind = Whole
	}
}

// erase removes the files of an object. The image is removed first, and durably: otherwise a power loss could
// leave an image without a record, an orphan that occupies its space.
func (p *Pool) erase(ref objectRef) error {
	if err := p.disk.removeImage(p.file(ref, imageExt)); err != nil {
		return err
	}
	return errors.Join(p.disk.remove(p.file(ref, recordExt)), p.disk.remove(p.file(ref, tombstoneExt)))
}

func (p *Pool) writeRecord(ref objectRef, r Record) error {
	data, err := r.encode()
	if err != nil {
		return err
	}
	return p.disk.replace(p.file(ref, recordExt), data)
}
