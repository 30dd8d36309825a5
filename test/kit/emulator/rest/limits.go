package rest

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
)

// Limit is a rate limit: so many requests within any stretch of so much emulated time. As text it is
// "250/1m", or "100/1m create" when it is one of the requests of a class.
type Limit struct {
	Requests int
	Window   time.Duration
	// Of is the class of requests that the limit counts, a word of the cloud; empty means all requests.
	Of string
}

// String is the text form.
func (l Limit) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%d/%s %s", l.Requests, l.Window, l.Of), " ")
}

// MarshalText writes the text form.
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the text form.
func (l *Limit) UnmarshalText(text []byte) error {
	rate, class, classed := strings.Cut(string(text), " ")
	requests, window, found := strings.Cut(rate, "/")
	n, err := strconv.Atoi(requests)
	if !found || err != nil || n < 1 || classed && (class == "" || strings.Contains(class, " ")) {
		return fmt.Errorf("rate limit %q is not like 250/1m", text)
	}
	d, err := time.ParseDuration(window)
	if err != nil || d <= 0 {
		return fmt.Errorf("rate limit %q is not like 250/1m", text)
	}
	*l = Limit{Requests: n, Window: d, Of: class}
	return nil
}

// Budget is what a client may know about a limit: how much is left and when the oldest request that
// counts will be forgotten, by the wall clock.
type Budget struct {
	Limit
	Remaining int
	Reset     time.Time
}

// window counts the requests of one limit, each for itself, as a sliding window does.
type window struct {
	Limit
	times []time.Time
}

func (w *window) forget(now time.Time) {
	old := 0
	for old < len(w.times) && !w.times[old].After(now.Add(-w.Window)) {
		old++
	}
	w.times = w.times[old:]
}

// limits holds the windows of one token.
type limits struct {
	clock *clock.Clock

	mu      sync.Mutex
	windows []*window
}

func (l *limits) set(all []Limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.windows = nil
	for _, limit := range all {
		l.windows = append(l.windows, &window{Limit: limit})
	}
}

// take counts a request of a class. It returns the budget of every limit that counts it afterwards, and
// the one that refuses the request if there is such. A refused request counts nowhere.
func (l *limits) take(class string) (budgets []Budget, refused *Budget) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	var counting []*window
	for _, w := range l.windows {
		if w.Of == "" || w.Of == class {
			counting = append(counting, w)
		}
	}
	for i, w := range counting {
		w.forget(now)
		budgets = append(budgets, Budget{Limit: w.Limit, Remaining: w.Requests - len(w.times), Reset: l.clock.Wall(now.Add(w.Window))})
		if len(w.times) > 0 {
			budgets[i].Reset = l.clock.Wall(w.times[0].Add(w.Window))
		}
		if budgets[i].Remaining <= 0 {
			refused = &budgets[i]
		}
	}
	if refused != nil {
		return budgets, refused
	}
	for i, w := range counting {
		w.times = append(w.times, now)
		budgets[i].Remaining--
	}
	return budgets, nil
}
