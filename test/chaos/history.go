package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

// history is what happened in a run, line by line.
type history struct {
	mu    sync.Mutex
	began time.Time
	lines []string
}

func newHistory() *history { return &history{began: time.Now()} }

// now is the time since the run began.
func (h *history) now() string { return fmt.Sprintf("%.3fs", time.Since(h.began).Seconds()) }

func (h *history) add(who, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf("%10s  %-12s %s", h.now(), who, fmt.Sprintf(format, args...)))
}

// detail adds the words of an error.
func (h *history) detail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf("%24s %s", "", status.Convert(err).Message()))
}

func (h *history) print(to io.Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, line := range h.lines {
		fmt.Fprintln(to, line)
	}
}
