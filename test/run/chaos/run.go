package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/controllers"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/trouble"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/world"
)

// setup says on what a plan is played.
type setup struct {
	world.Scene
	// plant makes backends wrong on purpose; nil: not. The first breach then ends the run.
	plant func(cloud.Cloud) cloud.Cloud
	// unread gives the backend of an emulated Linode account the fault world.UnreadDelete, with the same effect on the run.
	unread bool
}

// execute plays a plan in simulated time.
func execute(t *testing.T, p plan.Plan, with setup) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		in, hist := trouble.NewInjector(p.Seed, p.Faults), newHistory()
		s := newSim(p, in, hist)
		s.first = with.plant != nil || with.unread
		w, err := with.Open(in, func(format string, args ...any) { hist.add("cloud", format, args...) }, s.check)
		if err != nil {
			t.Fatal(err)
		}
		w.Unread = with.unread
		s.world = w
		s.fleet = controllers.NewMemory(w, with.plant, func() { s.set(func() {}) })
		if err := s.begin(); err != nil {
			t.Fatal(err)
		}
		s.play()
		o = s.outcome()
	})
	return o
}

// executeBinary plays a plan with the real program.
func executeBinary(p plan.Plan, open world.Maker, bin string) (o outcome, dir string, err error) {
	dir, err = os.MkdirTemp("", "chaos-")
	if err != nil {
		return o, "", err
	}
	in, hist := trouble.NewInjector(p.Seed, p.Faults), newHistory()
	s := newSim(p, in, hist)
	s.speed, hist.speed = world.BinarySpeed, world.BinarySpeed
	w, err := open(in, func(format string, args ...any) { hist.add("cloud", format, args...) }, s.check)
	if err != nil {
		return o, dir, err
	}
	s.world = w
	s.fleet = controllers.NewPrograms(w, bin, dir, func() { s.set(func() {}) }, func(number int, err error) {
		s.set(func() { s.wrong(BadCode, "controller %d ended by itself: %v", number, err) })
	})
	if err := s.begin(); err != nil {
		return o, dir, err
	}
	s.play()
	return s.outcome(), dir, nil
}

// outcome is what a run came to.
type outcome struct {
	wrongs  []Wrong
	kinds   []trouble.Kind // those that the cloud has
	fired   []trouble.Fault
	rpcs    int
	crashes int
	history *history
}

// outcome is what the run came to, after its end. A request that the end has overtaken may still note a breach.
func (s *sim) outcome() outcome {
	o := outcome{kinds: s.world.Kinds(), fired: s.in.Faults(), history: s.hist}
	s.mu.Lock()
	defer s.mu.Unlock()
	o.wrongs, o.rpcs, o.crashes = slices.Clone(s.wrongs), s.rpcs, s.crashes
	return o
}

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
