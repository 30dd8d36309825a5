package pool

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// fakeNode answers requests like the node program, with nothing to freeze.
type fakeNode struct {
	mu     sync.Mutex
	frozen map[ID]int
	thawed map[ID]int
	// refuse, if set, is what it answers; mute makes it answer nothing; hold bounds how long it freezes.
	refuse string
	mute   bool
	hold   time.Duration
}

func startNode(t *testing.T, p *Pool, n *fakeNode) *fakeNode {
	t.Helper()
	n.frozen, n.thawed = map[ID]int{}, map[ID]int{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- p.WatchFreezes(ctx, func(ctx context.Context, req FreezeRequest) { n.handle(ctx, t, p, req) })
	}()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
		if left := p.Frozen(); len(left) > 0 {
			t.Errorf("still frozen: %q", left)
		}
	})
	return n
}

func (n *fakeNode) handle(ctx context.Context, t *testing.T, p *Pool, req FreezeRequest) {
	count := func(m map[ID]int) { n.mu.Lock(); m[req.Volume]++; n.mu.Unlock() }
	switch {
	case n.mute:
		return
	case n.refuse != "":
		if err := p.RefuseFreeze(req, n.refuse); err != nil {
			t.Error(err)
		}
		return
	}
	if n.hold > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, n.hold)
		defer cancel()
	}
	if err := p.BeginFreeze(req); err != nil {
		t.Error(err)
	}
	count(n.frozen)
	if err := p.AnswerFreeze(req, req.Deadline); err != nil {
		t.Error(err)
	}
	<-ctx.Done()
	if err := p.WithdrawAnswer(req.Volume); err != nil {
		t.Error(err)
	}
	count(n.thawed)
	if err := p.EndFreeze(req.Volume); err != nil {
		t.Error(err)
	}
}

func (n *fakeNode) counts(id ID) (frozen, thawed int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.frozen[id], n.thawed[id]
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for !is() {
		if wait(ctx, time.Millisecond) != nil {
			t.Fatalf("%s: not after 5 s", what)
		}
	}
}

func TestFreezeHoldsUntilItIsReleased(t *testing.T) {
	p := openPool(t, t.TempDir())
	n := startNode(t, p, &fakeNode{})
	id := NewID()
	for round := range 3 {
		f, err := p.RequestFreeze(t.Context(), id, time.Minute)
		must(t, err)
		must(t, f.Holds())
		if frozen, thawed := n.counts(id); frozen != round+1 || thawed != round {
			t.Errorf("frozen %d times and thawed %d times, want %d and %d", frozen, thawed, round+1, round)
		}
		_, err = p.RequestFreeze(t.Context(), id, time.Minute)
		wantKind(t, "a second request", err, fault.Busy)
		must(t, f.Holds())
		f.Release()
		f.Release()
		eventually(t, "thaw", func() bool { _, thawed := n.counts(id); return thawed == round+1 })
		wantKind(t, "Holds after the release", f.Holds(), fault.Precondition)
	}
	if found, err := os.ReadDir(p.path(freezeDir)); err != nil || len(found) > 0 {
		t.Errorf("the folder holds %v, %v", found, err)
	}
}

func TestFreezeEndsByItself(t *testing.T) {
	t.Run("when the asker dies", func(t *testing.T) {
		p := openPool(t, t.TempDir())
		n := startNode(t, p, &fakeNode{})
		id := NewID()
		f, err := p.RequestFreeze(t.Context(), id, 300*time.Millisecond)
		must(t, err)
		eventually(t, "thaw", func() bool { _, thawed := n.counts(id); return thawed == 1 })
		wantKind(t, "Holds after the deadline", f.Holds(), fault.Precondition)
		// The dead one's request is in nobody's way.
		next, err := p.RequestFreeze(t.Context(), id, time.Minute)
		must(t, err)
		f.Release() // and its late release does not end another's
		must(t, next.Holds())
		next.Release()
	})
	t.Run("when the asker is killed, long before the deadline", func(t *testing.T) {
		p := openPool(t, t.TempDir())
		n := startNode(t, p, &fakeNode{})
		id := NewID()
		f, err := p.RequestFreeze(t.Context(), id, time.Minute)
		must(t, err)
		begin := time.Now()
		must(t, f.request.Close()) // as the kernel does for the dead
		eventually(t, "thaw", func() bool { _, thawed := n.counts(id); return thawed == 1 })
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("the thaw took %s", took)
		}
	})
	t.Run("when the asker is killed and the next one comes at once", func(t *testing.T) {
		p := openPool(t, t.TempDir())
		id := NewID()
		note := freezeNote{Format: format, ID: NewID(), Volume: id, Until: time.Now().Add(time.Minute)}
		f, err := p.postRequest(note)
		must(t, err)
		_, err = p.postRequest(note)
		wantKind(t, "a request beside one that stands", err, fault.Busy)
		must(t, f.Close())
		f, err = p.postRequest(note)
		must(t, err)
		must(t, f.Close())
	})
	t.Run("when the node program thaws before its time", func(t *testing.T) {
		p := openPool(t, t.TempDir())
		startNode(t, p, &fakeNode{hold: 100 * time.Millisecond})
		f, err := p.RequestFreeze(t.Context(), NewID(), time.Minute)
		must(t, err)
		defer f.Release()
		eventually(t, "Holds fails", func() bool { return f.Holds() != nil })
	})
	t.Run("when the answer stays although its time is over", func(t *testing.T) {
		p := openPool(t, t.TempDir())
		f := &Freeze{pool: p, note: freezeNote{Volume: NewID(), ID: NewID()}, until: time.Now().Add(time.Hour)}
		req := FreezeRequest{Volume: f.note.Volume, ID: f.note.ID}
		must(t, p.AnswerFreeze(req, time.Now().Add(time.Minute)))
		must(t, f.Holds())
		must(t, p.AnswerFreeze(req, time.Now().Add(-time.Second)))
		wantKind(t, "Holds", f.Holds(), fault.Precondition)
		must(t, p.AnswerFreeze(req, time.Now().Add(time.Minute)))
		f.until = time.Now()
		wantKind(t, "Holds when the steady clock says so", f.Holds(), fault.Precondition)
		must(t, p.AnswerFreeze(FreezeRequest{Volume: req.Volume, ID: NewID()}, time.Now().Add(time.Minute)))
		f.until = time.Now().Add(time.Hour)
		wantKind(t, "Holds by another's answer", f.Holds(), fault.Precondition)
	})
}

func TestFreezeThatIsNotGranted(t *testing.T) {
	for name, tc := range map[string]struct {
		node *fakeNode
		says string
	}{
		"no node program runs":        {nil, "is it running"},
		"it does not answer":          {&fakeNode{mute: true}, "is it running"},
		"it refuses and says why not": {&fakeNode{refuse: "it is a raw block volume"}, "raw block"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openPool(t, t.TempDir())
			if tc.node != nil {
				startNode(t, p, tc.node)
			}
			begin := time.Now()
			_, err := p.RequestFreeze(t.Context(), NewID(), time.Minute)
			wantKind(t, "RequestFreeze", err, fault.Precondition)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("RequestFreeze = %v, want %q in it", err, tc.says)
			}
			if took := time.Since(begin); took > answerWait+time.Second {
				t.Errorf("it took %s", took)
			}
			if left := p.notes(recordExt); len(left) > 0 {
				t.Errorf("the request stands: %q", left)
			}
			eventually(t, "the refusal is gone", func() bool { return len(p.Frozen()) == 0 })
		})
	}
}

func TestHalfWrittenNotesAreSwept(t *testing.T) {
	dir := t.TempDir()
	p := openPool(t, dir)
	old := time.Now().Add(-MostFreeze - time.Minute)
	for name, tc := range map[string]struct {
		file  string
		age   time.Time
		taken bool
		stays bool
	}{
		"one that a killed process left":      {file: string(NewID()) + newExt, age: old},
		"one that was begun just now":         {file: string(NewID()) + newExt, age: time.Now(), stays: true},
		"one that somebody is still writing":  {file: string(NewID()) + newExt, age: old, taken: true, stays: true},
		"a file of somebody else":             {file: "notes" + newExt, age: old, stays: true},
		"a request, however old it may be":    {file: string(NewID()) + recordExt, age: old, stays: true},
		"what must be thawed, however old":    {file: string(NewID()) + freezingExt, age: old, stays: true},
		"an answer, which stands for a thaw":  {file: string(NewID()) + frozenExt, age: old, stays: true},
		"a half-written file of another kind": {file: string(NewID()) + recordExt + newExt, age: old, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := p.path(freezeDir, tc.file)
			f, err := os.Create(path)
			must(t, err)
			defer func() { _ = f.Close() }()
			must(t, os.Chtimes(path, tc.age, tc.age))
			if tc.taken {
				must(t, flock(f, unix.LOCK_EX))
			} else {
				must(t, f.Close())
			}
			p = openPool(t, dir)
			if _, err := os.Lstat(path); (err == nil) != tc.stays {
				t.Errorf("after the next start: %v, want it to stay: %v", err, tc.stays)
			}
		})
	}
}
