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

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Kind says what was found in the pool.
type Kind string

// The kinds. Everything but Whole is a left-over: it is reported, and removed only by name.
const (
	// Whole is a volume with its record and its image.
	Whole Kind = "volume"
	// NoRecord is an image whose record is missing.
	NoRecord Kind = "image without record"
	// NoImage is a record whose image is missing.
	NoImage Kind = "record without image"
	// Damaged is a record that cannot be read, or an image that does not fit it.
	Damaged Kind = "damaged"
	// Unknown is a file that no version of this program makes. It is never removed.
	Unknown Kind = "unknown file"
)

// Entry is one thing in the pool.
type Entry struct {
	// ID is empty for an Unknown file.
	ID   ID
	Kind Kind
	// File is the base name of the image, or of the unknown file.
	File string
	// Record is set for Whole and NoImage.
	Record Record
	// Size and Allocated are the image's length and how much of it has a place on the disk.
	Size, Allocated int64
	// Problem says in words what is wrong with a left-over.
	Problem string
}

// promise returns how many bytes of the disk this entry may still come to need.
func (e Entry) promise() int64 {
	if e.Kind == NoImage || e.Kind == Unknown {
		return 0
	}
	return max(0, max(e.Size, e.Record.promised())-e.Allocated)
}

// List returns everything in the pool, sorted by id, unknown files last.
func (p *Pool) List(ctx context.Context) ([]Entry, error) {
	unlock, err := p.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return p.settle()
}

// Get returns what lies under one id. fault.NotFound when nothing does.
func (p *Pool) Get(ctx context.Context, id ID) (Entry, error) {
	unlock, err := p.enter(ctx)
	if err != nil {
		return Entry{}, err
	}
	defer unlock()
	return p.entry(id)
}

// FindByName returns the volume that was created under this name. fault.NotFound when there is none,
// fault.Precondition when there is only its record.
func (p *Pool) FindByName(ctx context.Context, name string) (Entry, error) {
	entries, err := p.List(ctx)
	if err != nil {
		return Entry{}, err
	}
	e, ok := named(entries, name)
	switch {
	case !ok:
		return Entry{}, fmt.Errorf("pool %s has no volume named %q: %w", p.dir, name, fault.NotFound)
	case e.Kind != Whole:
		return Entry{}, p.refuse(e)
	}
	return e, nil
}

func named(entries []Entry, name string) (Entry, bool) {
	for _, e := range entries {
		if e.Record.Name == name && (e.Kind == Whole || e.Kind == NoImage) {
			return e, true
		}
	}
	return Entry{}, false
}

// refuse is the error for a left-over where a whole volume is needed.
func (p *Pool) refuse(e Entry) error {
	return fmt.Errorf("volume %s: %s (%s); look at it with `cloudblock-controller volumes` and put the file back, or remove the rest with --delete: %w",
		p.Handle(e.ID), e.Kind, e.Problem, fault.Precondition)
}

// settle reads the whole folder, after finishing what a killed process left half done. Whoever has
// the lock knows that nobody is at it any more. Under the lock.
func (p *Pool) settle() ([]Entry, error) {
	files, err := os.ReadDir(p.path(volumesDir))
	if err != nil {
		return nil, fmt.Errorf("read pool %s: %w", p.dir, kindOf(err))
	}
	var entries []Entry
	ids := map[ID]bool{}
	for _, f := range files {
		switch id, ext := splitName(f.Name()); ext {
		case imageExt, recordExt, markExt:
			ids[id] = true
		case recordExt + newExt:
			// Never the only copy of anything: replace moves a complete one to its name.
			p.disk.discard(p.path(volumesDir, f.Name()))
		default:
			entries = append(entries, Entry{Kind: Unknown, File: f.Name(), Problem: "not made by this program"})
		}
	}
	for id := range ids {
		e, err := p.entry(id)
		if errors.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
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

// splitName takes the name of a file of the pool apart; ext is empty for any other name.
func splitName(name string) (id ID, ext string) {
	if len(name) < idLen {
		return "", ""
	}
	id, err := ParseID(name[:idLen])
	if err != nil {
		return "", ""
	}
	switch ext = name[idLen:]; ext {
	case imageExt, recordExt, markExt, recordExt + newExt:
		return id, ext
	}
	return "", ""
}

// entry looks at one id, after finishing what a killed process left of it. Under the lock.
func (p *Pool) entry(id ID) (Entry, error) {
	if _, err := os.Lstat(p.path(volumesDir, id.markName())); err == nil {
		// It was proven to be free before it was marked.
		return Entry{}, p.clearAway(id)
	}
	e := Entry{ID: id, File: id.ImageName()}
	var imageErr error
	e.Size, e.Allocated, imageErr = sizes(p.ImagePath(id))
	noImage := errors.Is(imageErr, fs.ErrNotExist)

	data, err := readFile(p.path(volumesDir, id.recordName()))
	switch {
	case errors.Is(err, fs.ErrNotExist) && noImage:
		return Entry{}, fmt.Errorf("volume %s: %w", p.Handle(id), fault.NotFound)
	case errors.Is(err, fs.ErrNotExist):
		e.Kind, e.Problem = NoRecord, "its record "+id.recordName()+" is missing"
		if imageErr != nil {
			e.Kind, e.Problem = Damaged, imageErr.Error()
		}
		return e, nil
	case err != nil:
		e.Kind, e.Problem = Damaged, err.Error()
		return e, nil
	}
	r, err := decodeRecord(id, data)
	if err != nil {
		e.Kind, e.Problem = Damaged, fmt.Sprintf("record %s: %v", id.recordName(), err)
		return e, nil
	}
	if r.State == Creating {
		// Nobody was ever told of this volume.
		return Entry{}, p.clearAway(id)
	}
	e.classify(r, noImage, imageErr)
	return e, nil
}

// clearAway removes what a killed process left of a create or a delete. It always answers an error:
// fault.NotFound once nothing is left.
func (p *Pool) clearAway(id ID) error {
	if err := p.erase(id); err != nil {
		return fmt.Errorf("clear away half-made or half-removed volume %s: %w", p.Handle(id), kindOf(err))
	}
	return fmt.Errorf("volume %s: %w", p.Handle(id), fault.NotFound)
}

// classify compares a good record with the image.
func (e *Entry) classify(r Record, noImage bool, imageErr error) {
	switch {
	case noImage:
		e.Kind, e.Record, e.Problem = NoImage, r, "its image "+e.File+" is missing"
	case imageErr != nil:
		e.Kind, e.Problem = Damaged, imageErr.Error()
	case e.Size < r.Size || e.Size > r.promised():
		e.Kind, e.Problem = Damaged, fmt.Sprintf("the image has %d bytes, its record says %d", e.Size, r.Size)
	default:
		e.Kind, e.Record = Whole, r
	}
}

// erase removes a volume's files. The image goes first, and durably: were the record gone and the
// image there after a power loss, its space would be lost to a left-over that nobody knows.
func (p *Pool) erase(id ID) error {
	if err := p.disk.removeImage(p.ImagePath(id)); err != nil {
		return err
	}
	return errors.Join(p.disk.remove(p.path(volumesDir, id.recordName())), p.disk.remove(p.path(volumesDir, id.markName())))
}

func (p *Pool) writeRecord(r Record) error {
	data, err := r.encode()
	if err != nil {
		return err
	}
	return p.disk.replace(p.path(volumesDir, r.ID.recordName()), data)
}
