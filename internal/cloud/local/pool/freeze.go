package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// MostFreeze is the longest that a filesystem is kept frozen for one request.
const MostFreeze = 30 * time.Second

const (
	freezeDir = "freeze"
	// frozenExt and freezingExt are files of the node program: its answer, and its note, made ahead,
	// of what it must thaw.
	frozenExt   = ".frozen"
	freezingExt = ".freezing"
	// answerWait is how long the node program has to answer.
	answerWait = 2 * time.Second
	// answerPause is the pause between two looks for its answer.
	answerPause = 5 * time.Millisecond
)

// freezeNote is the content of a request and of an answer. None of these files is ever made durable:
// a power loss thaws everything by itself, and what is left afterwards has expired.
type freezeNote struct {
	Format int `json:"format"`
	// ID is new for every request; an answer repeats it.
	ID     ID        `json:"id"`
	Volume ID        `json:"volume"`
	Until  time.Time `json:"until"`
	// Refused, in an answer, says why the filesystem was not frozen.
	Refused string `json:"refused,omitempty"`
}

// Freeze is a filesystem that the node program holds frozen for this process.
type Freeze struct {
	pool  *Pool
	note  freezeNote
	until time.Time
	// request is the open request file. Its flock ends with this process, which tells the node program
	// at once that nobody waits any more.
	request *os.File
}

// RequestFreeze asks the node program to freeze the filesystem of a volume for this long, and returns
// when it is frozen. The caller must Release it. fault.Precondition when the node program does not
// answer within two seconds or refuses; then nothing is frozen, or no longer than it takes the node
// program to see that the request is gone. fault.Busy when another request for this volume stands.
func (p *Pool) RequestFreeze(ctx context.Context, id ID, d time.Duration) (*Freeze, error) {
	begin := time.Now()
	f := &Freeze{pool: p, note: freezeNote{Format: format, ID: NewID(), Volume: id, Until: begin.Add(min(d, MostFreeze)).UTC()}}
	var err error
	if f.request, err = p.postRequest(f.note); err != nil {
		return nil, fmt.Errorf("ask the node program to freeze volume %s: %w", p.Handle(id), kindOf(err))
	}
	f.until = begin.Add(min(d, MostFreeze))
	if err := f.awaitAnswer(ctx, begin); err != nil {
		f.Release()
		return nil, err
	}
	return f, nil
}

func (f *Freeze) awaitAnswer(ctx context.Context, begin time.Time) error {
	volume := f.pool.Handle(f.note.Volume)
	for time.Since(begin) < answerWait {
		answer, err := f.pool.readNote(f.note.Volume, frozenExt)
		switch {
		case err != nil || answer.ID != f.note.ID:
		case answer.Refused != "":
			return fmt.Errorf("the node program cannot freeze volume %s: %s: %w", volume, answer.Refused, fault.Precondition)
		default:
			// By the clock on the wall, which the two programs share, and by the one that is never set.
			f.until = time.Now().Add(min(time.Until(answer.Until), time.Until(f.until)))
			return f.Holds()
		}
		if err := wait(ctx, answerPause); err != nil {
			return err
		}
	}
	return fmt.Errorf("the node program did not freeze volume %s within %s; is it running? %w", volume, answerWait, fault.Precondition)
}

// Holds proves that the filesystem has been frozen without a break since RequestFreeze returned. The
// node program takes its answer back before it thaws, so an answer that is there is true.
func (f *Freeze) Holds() error {
	answer, err := f.pool.readNote(f.note.Volume, frozenExt)
	now := time.Now()
	if err != nil || answer.ID != f.note.ID || answer.Refused != "" || !now.Before(f.until) || !now.Round(0).Before(answer.Until) {
		return fmt.Errorf("volume %s did not stay frozen as long as needed: %w", f.pool.Handle(f.note.Volume), fault.Precondition)
	}
	return nil
}

// Release takes the request back, which makes the node program thaw. It is safe to call twice.
func (f *Freeze) Release() {
	if now, err := f.pool.readNote(f.note.Volume, recordExt); err == nil && now.ID == f.note.ID {
		_ = os.Remove(f.pool.notePath(f.note.Volume, recordExt))
	}
	if f.request != nil {
		_ = f.request.Close() // a second time it only says that it is closed
	}
}

// abandoned reports whether the process that made a request is gone.
func (p *Pool) abandoned(id ID) bool {
	f, err := os.OpenFile(p.notePath(id, recordExt), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return flock(f, unix.LOCK_SH) == nil
}

// AnswerPath returns where the answer about a volume is, for a process that has no pool: the guard
// that thaws when the node program is killed must remove it before it thaws.
func (p *Pool) AnswerPath(id ID) string { return p.notePath(id, frozenExt) }

func (p *Pool) notePath(id ID, ext string) string { return p.path(freezeDir, string(id)+ext) }

// postRequest puts a request where the node program looks, unless one that somebody waits for is there.
func (p *Pool) postRequest(n freezeNote) (*os.File, error) {
	old, err := p.readNote(n.Volume, recordExt)
	if err == nil && time.Now().Before(old.Until) && !p.abandoned(n.Volume) {
		return nil, fmt.Errorf("another request stands until %s: %w", old.Until.Format(time.TimeOnly), fault.Busy)
	}
	if err := p.removeNote(n.Volume, recordExt); err != nil {
		return nil, err
	}
	f, err := p.writeNote(n, recordExt, unix.RENAME_NOREPLACE)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("another request was faster: %w", fault.Busy)
	}
	return f, err
}

// writeNote writes one of the files of the protocol in one step, and returns it open and locked.
func (p *Pool) writeNote(n freezeNote, ext string, flags uint) (*os.File, error) {
	data, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	name := p.notePath(n.Volume, ext)
	// Two programs may be at it at once.
	tmp := filepath.Join(filepath.Dir(name), string(NewID())+newExt)
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, filePerm)
	if err != nil {
		return nil, err
	}
	// The lock first: it tells sweepNotes that somebody is at it.
	if err = flock(f, unix.LOCK_EX); err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, name, flags)
	}
	if err != nil {
		p.disk.discard(tmp)
		return nil, errors.Join(fmt.Errorf("write %s: %w", name, err), f.Close())
	}
	return f, nil
}

// abandoned is how old a half-written note is that belongs to nobody any more. A living process locks it
// at once; one that was held up for so long finds it gone, and its freeze is refused.
const abandoned = 5 * time.Second

// sweepNotes removes half-written files whose process was killed.
func (p *Pool) sweepNotes() {
	for _, id := range p.notes(newExt) {
		name := p.notePath(id, newExt)
		f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		st, err := f.Stat()
		if err == nil && st.Mode().IsRegular() && time.Since(st.ModTime()) > abandoned && flock(f, unix.LOCK_EX) == nil {
			p.disk.discard(name)
		}
		_ = f.Close()
	}
}

func (p *Pool) readNote(id ID, ext string) (freezeNote, error) {
	data, err := readFile(p.notePath(id, ext))
	if err != nil {
		return freezeNote{}, err
	}
	var n freezeNote
	if err := unmarshal(data, &n); err != nil {
		return freezeNote{}, err
	}
	if _, err := ParseID(string(n.ID)); err != nil {
		return freezeNote{}, err
	}
	if n.Format != format || n.Volume != id {
		return freezeNote{}, fmt.Errorf("note %s%s has format %d and is of volume %q", id, ext, n.Format, n.Volume)
	}
	return n, nil
}
