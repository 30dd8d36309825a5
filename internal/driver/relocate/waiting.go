package relocate

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// sayAfter is how long a step lasts before the command says what it waits for, and sayAgain the time until it says so again.
const sayAfter, sayAgain = 2 * time.Second, 30 * time.Second

// waiting says what the command waits for, where that takes long.
type waiting struct {
	out io.Writer

	mu    sync.Mutex
	what  string // "": nothing
	since time.Time
	timer *time.Timer
}

// step is called with what the command waits for from now on.
func (w *waiting) step(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if what == w.what {
		return
	}
	w.what, w.since = what, time.Now()
	if w.timer != nil {
		w.timer.Stop()
	}
	w.timer = time.AfterFunc(sayAfter, func() { w.say(what) })
}

// end is called when the command waits for nothing any more.
func (w *waiting) end() { w.step("") }

func (w *waiting) say(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if what != w.what || what == "" {
		return
	}
	_, _ = fmt.Fprintf(w.out, "waiting for %s (%s)\n", what, time.Since(w.since).Round(time.Second))
	w.timer.Reset(sayAgain)
}
