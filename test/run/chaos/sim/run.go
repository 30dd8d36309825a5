package sim

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

// Setup says on what a plan is played.
type Setup struct {
	world.Scene
	// Plant makes backends wrong on purpose; nil: not. The first breach then ends the run.
	Plant func(cloud.Cloud) cloud.Cloud
	// Unread gives the backend of an emulated Linode account the fault world.UnreadDelete, with the same effect on the run.
	Unread bool
}

// Execute plays a plan in simulated time and returns what came of it. A world that cannot be made ends the test.
func Execute(t *testing.T, p plan.Plan, with Setup) (o Outcome) {
	synctest.Test(t, func(t *testing.T) {
		in, hist := trouble.NewInjector(p.Seed, p.Faults), newHistory()
		s := newSim(p, in, hist)
		s.first = with.Plant != nil || with.Unread
		w, err := with.Open(in, func(format string, args ...any) { hist.add("cloud", format, args...) }, s.check)
		if err != nil {
			t.Fatal(err)
		}
		w.Unread = with.Unread
		s.world = w
		s.fleet = controllers.NewMemory(w, with.Plant, func() { s.set(func() {}) })
		if err := s.begin(); err != nil {
			t.Fatal(err)
		}
		s.play()
		o = s.outcome()
	})
	return o
}

// ExecuteBinary plays a plan with the real program in the folder bin and returns what came of it, and the folder with the programs' logs,
// which is the caller's to remove, also after an error.
func ExecuteBinary(p plan.Plan, open world.Maker, bin string) (o Outcome, dir string, err error) {
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

// Outcome is what a run came to.
type Outcome struct {
	Wrongs  []Wrong         // in their order; none in a good run
	Kinds   []trouble.Kind  // those that the cloud has
	Fired   []trouble.Fault // those that happened, also to the callers
	RPCs    int             // the calls of controllers
	Crashes int
	History *History
}

// outcome is what the run came to, after its end. A request that the end has overtaken may still note a breach.
func (s *sim) outcome() Outcome {
	o := Outcome{Kinds: s.world.Kinds(), Fired: s.in.Faults(), History: s.hist}
	s.mu.Lock()
	defer s.mu.Unlock()
	o.Wrongs, o.RPCs, o.Crashes = slices.Clone(s.wrongs), s.rpcs, s.crashes
	return o
}

// History is what happened in a run, line by line.
type History struct {
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

func newHistory() *History { return &History{began: time.Now(), speed: 1} }

// now is the time since the run began.
func (h *History) now() string { return seconds(h.since()) }

// since is the same in the cluster's time.
func (h *History) since() time.Duration { return time.Duration(float64(time.Since(h.began)) * h.speed) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }

func (h *History) add(who, format string, args ...any) {
	h.put(fmt.Sprintf("%-12s %s", who, fmt.Sprintf(format, args...)))
}

// detail adds the words of an error.
func (h *History) detail(err error) {
	words := strings.ReplaceAll(status.Convert(err).Message(), "\n", "; ")
	h.put(strings.Repeat(" ", 13) + words)
}

func (h *History) put(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line{h.since(), text})
}

// after is how many lines are printed after the first breach; then only further breaches are.
const after = 25

// Print writes the lines, but few of those after the first breach.
func (h *History) Print(to io.Writer) {
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
