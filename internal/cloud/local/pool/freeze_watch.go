package pool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// FreezeRequest is a wish of another process, as the node program sees it.
type FreezeRequest struct {
	// Volume is whose filesystem should be frozen.
	Volume ID
	// ID is new for every request.
	ID ID
	// Deadline is when it must be thawed at the latest, whatever happens. It has a monotonic clock
	// reading and is never later than MostFreeze after the request was seen.
	Deadline time.Time
}

// freezeTick is how often the node program looks at the folder even if the kernel reports nothing.
const freezeTick = 200 * time.Millisecond

// WatchFreezes calls handle, in a goroutine of its own, for every freeze request that stands or
// appears, until ctx ends. It returns when all handles have returned. The context of handle ends when
// the request is taken back or replaced, when its deadline passes, and with ctx. Per volume there is
// one handle at a time. No method of this protocol takes the pool's lock, since whoever asks may hold it.
func (p *Pool) WatchFreezes(ctx context.Context, handle func(ctx context.Context, req FreezeRequest)) error {
	wake := make(chan struct{}, 1)
	stop, err := p.watchFolder(wake)
	if err != nil {
		return fmt.Errorf("watch %s: %w", p.path(freezeDir), kindOf(err))
	}
	w := &freezeWatch{pool: p, handle: handle, wake: wake, running: map[ID]*freezeRun{}}
	tick := time.NewTicker(freezeTick)
	defer func() {
		tick.Stop()
		w.done.Wait()
		for id := range w.running {
			_ = p.WithdrawAnswer(id)
		}
		stop()
	}()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-tick.C:
		}
	}
}

// watchFolder makes the kernel send to wake when something in the folder changes.
func (p *Pool) watchFolder(wake chan<- struct{}) (stop func(), err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, p.path(freezeDir), unix.IN_MOVED_TO|unix.IN_DELETE); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		events := make([]byte, 4096)
		for {
			if _, err := f.Read(events); err != nil {
				return
			}
			nudge(wake)
		}
	})
	return func() {
		_ = f.Close()
		reader.Wait()
	}, nil
}

func nudge(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// freezeWatch is the state of one WatchFreezes; only its own goroutine touches running.
type freezeWatch struct {
	pool    *Pool
	handle  func(ctx context.Context, req FreezeRequest)
	wake    chan<- struct{}
	running map[ID]*freezeRun
	done    sync.WaitGroup
}

// freezeRun is the handle of one request. It stays known after its end, for as long as its request
// stands, so that it is not begun again.
type freezeRun struct {
	request ID
	cancel  context.CancelFunc
	ended   chan struct{}
}

// look compares the folder with what is running.
func (w *freezeWatch) look(ctx context.Context) {
	w.pool.sweepNotes()
	standing := map[ID]freezeNote{}
	for _, id := range w.pool.notes(recordExt) {
		n, err := w.pool.readNote(id, recordExt)
		switch {
		case err != nil:
		case w.pool.abandoned(id):
			// Its process was killed: nobody waits for the deadline.
			_ = w.pool.removeNote(id, recordExt)
		default:
			standing[id] = n
		}
	}
	for id, run := range w.running {
		if standing[id].ID == run.request {
			continue
		}
		run.cancel()
		select {
		case <-run.ended:
			// A refusal stands as long as its request; the handle removed everything else itself.
			_ = w.pool.WithdrawAnswer(id)
			delete(w.running, id)
		default: // its end wakes us
		}
	}
	if ctx.Err() != nil {
		return
	}
	for id, n := range standing {
		left := time.Until(n.Until)
		if _, busy := w.running[id]; !busy && left > 0 {
			w.start(ctx, FreezeRequest{Volume: id, ID: n.ID, Deadline: time.Now().Add(min(left, MostFreeze))})
		}
	}
}

func (w *freezeWatch) start(ctx context.Context, req FreezeRequest) {
	ctx, cancel := context.WithDeadline(ctx, req.Deadline)
	run := &freezeRun{request: req.ID, cancel: cancel, ended: make(chan struct{})}
	w.running[req.Volume] = run
	w.done.Go(func() {
		defer nudge(w.wake)
		defer close(run.ended)
		defer cancel()
		w.handle(ctx, req)
	})
}

// notes returns the volumes for which there is a file of the protocol with this extension.
func (p *Pool) notes(ext string) []ID {
	files, err := os.ReadDir(p.path(freezeDir))
	if err != nil {
		return nil
	}
	var ids []ID
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ext); ok {
			if id, err := ParseID(name); err == nil {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// BeginFreeze notes that a filesystem is about to be frozen. It comes before the freeze, so that a
// node program that was killed finds at its start what it must thaw.
func (p *Pool) BeginFreeze(req FreezeRequest) error {
	return p.answer(freezeNote{ID: req.ID, Volume: req.Volume, Until: req.Deadline}, freezingExt)
}

// AnswerFreeze says that the filesystem is frozen, and until when at the most.
func (p *Pool) AnswerFreeze(req FreezeRequest, until time.Time) error {
	return p.answer(freezeNote{ID: req.ID, Volume: req.Volume, Until: until}, frozenExt)
}

// RefuseFreeze says why the filesystem is not frozen, so that nobody waits in vain.
func (p *Pool) RefuseFreeze(req FreezeRequest, why string) error {
	return p.answer(freezeNote{ID: req.ID, Volume: req.Volume, Until: req.Deadline, Refused: why}, frozenExt)
}

func (p *Pool) answer(n freezeNote, ext string) error {
	n.Format, n.Until = format, n.Until.UTC()
	f, err := p.writeNote(n, ext, 0)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("answer a request to freeze volume %s: %w", p.Handle(n.Volume), kindOf(err))
	}
	return nil
}

// WithdrawAnswer takes the answer back. Whoever thaws calls it first: an answer must never outlive
// what it says, or a copy would be taken for consistent that is not.
func (p *Pool) WithdrawAnswer(id ID) error { return p.removeNote(id, frozenExt) }

// EndFreeze removes the answer and the note of BeginFreeze. It comes after the thaw.
func (p *Pool) EndFreeze(id ID) error {
	return errors.Join(p.removeNote(id, frozenExt), p.removeNote(id, freezingExt))
}

func (p *Pool) removeNote(id ID, ext string) error {
	if err := os.Remove(p.notePath(id, ext)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove note %s%s: %w", id, ext, kindOf(err))
	}
	return nil
}

// Frozen lists the volumes whose filesystem a node program has frozen, or was about to freeze, and has
// not said to have thawed: what it must thaw when it starts after having been killed.
func (p *Pool) Frozen() []ID {
	ids := p.notes(freezingExt)
	for _, id := range p.notes(frozenExt) {
		if _, err := os.Lstat(p.notePath(id, freezingExt)); err != nil {
			ids = append(ids, id)
		}
	}
	return ids
}
