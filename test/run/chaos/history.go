package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

// history is what happened in a run, line by line.
type history struct {
	mu    sync.Mutex
	began time.Time
	// speed is the sim's.
	speed float64
	lines []line
}

// line is one event, or the words that belong to the one before.
type line struct {
	at   time.Duration
	text string
}

func newHistory() *history { return &history{began: time.Now(), speed: 1} }

// now is the time since the run began.
func (h *history) now() string { return seconds(h.since()) }

// since is the same in the cluster's time.
func (h *history) since() time.Duration { return time.Duration(float64(time.Since(h.began)) * h.speed) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }

func (h *history) add(who, format string, args ...any) {
	h.put(fmt.Sprintf("%-12s %s", who, fmt.Sprintf(format, args...)))
}

// detail adds the words of an error.
func (h *history) detail(err error) {
	words := strings.ReplaceAll(status.Convert(err).Message(), "\n", "; ")
	h.put(strings.Repeat(" ", 13) + words)
}

func (h *history) put(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line{h.since(), text})
}

// after is how many lines are printed after the first breach; then only further breaches are.
const after = 25

func (h *history) print(to io.Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := slices.IndexFunc(h.lines, line.breach)
	left := 0
	for i, l := range h.lines {
		if first >= 0 && i > first+after && !l.breach() {
			left++
			continue
		}
		fmt.Fprintf(to, "%10s  %s\n", seconds(l.at), l.text)
	}
	if left > 0 {
		fmt.Fprintf(to, "%10s  and %d lines more\n", "", left)
	}
}

func (l line) breach() bool { return strings.HasPrefix(l.text, breachMark) }

const breachMark = "BREACH"
