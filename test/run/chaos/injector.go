package main

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Kind is one thing that can go wrong with a call.
type Kind string

// The faults of a cloud.
const (
	// Refused: the call is answered with a passing error and changes nothing.
	Refused Kind = "refused"
	// LostRequest: the connection breaks before the call has an effect.
	LostRequest Kind = "lost-request"
	// LostAnswer: the connection breaks after the effect.
	LostAnswer Kind = "lost-answer"
	// Slow: the change takes much longer than usual, often longer than anybody waits.
	Slow Kind = "slow"
	// Failed: the change is accepted, takes its time and then fails.
	Failed Kind = "failed"
	// Stale: a read shows what was true a while ago.
	Stale Kind = "stale"
	// Full: there is no room.
	Full Kind = "full"
	// Throttled: too many requests; nothing changes.
	Throttled Kind = "throttled"
	// Pending: the machine has another change under way; nothing changes.
	Pending Kind = "pending"
)

// The disturbances on the side of the callers. They are no faults of the cloud and not counted as such.
const (
	// Cancelled: the sidecar goes away in the middle of the call.
	Cancelled Kind = "cancelled"
	// Hurried: the call has a deadline that is too short.
	Hurried Kind = "hurried"
	// Twice: two leaders of one sidecar send the same call.
	Twice Kind = "twice"
	// Late: something goes on that had been given up long ago.
	Late Kind = "late"
)

// Fault is one thing that went wrong: the nth call of this name for this object.
type Fault struct {
	Call, Object string
	Nth          int
	Kind         Kind
}

func (f Fault) String() string {
	return fmt.Sprintf("%s %s #%d: %s", f.Call, f.Object, f.Nth, f.Kind)
}

// chance is how probable a fault is for one call.
type chance struct {
	kind Kind
	p    float64
}

// injector decides what goes wrong. Its decisions depend only on the seed, the call, the object and how
// many such calls there were before, so they do not change when other steps are left out.
type injector struct {
	seed uint64
	// only are the faults that happen; nil: they are drawn.
	only map[Fault]bool

	mu    sync.Mutex
	seen  map[string]int
	fired []Fault
	last  map[Kind]time.Time
	off   bool
	// crash holds, for each controller, where its next call of the cloud kills it.
	crash map[int]crashPoint
}

// crashPoint is a place within a call of the cloud.
type crashPoint string

const (
	nowhere      crashPoint = ""
	beforeEffect crashPoint = "before the effect"
	afterEffect  crashPoint = "after the effect"
)

func newInjector(seed uint64, only []Fault) *injector {
	in := &injector{seed: seed, seen: map[string]int{}, last: map[Kind]time.Time{}, crash: map[int]crashPoint{}}
	if only != nil {
		in.only = map[Fault]bool{}
		for _, f := range only {
			in.only[f] = true
		}
	}
	return in
}

// decide counts the call and says what goes wrong with it. The source of randomness is the call's own.
func (in *injector) decide(call, object string, chances []chance) (Kind, *rand.Rand) {
	in.mu.Lock()
	defer in.mu.Unlock()
	key := call + " " + object
	in.seen[key]++
	f := Fault{Call: call, Object: object, Nth: in.seen[key]}
	rng := randomOf(in.seed, fmt.Sprint(key, f.Nth))
	u := rng.Float64()
	if in.off {
		return "", rng
	}
	for _, c := range chances {
		f.Kind = c.kind
		u -= c.p
		if in.only != nil && in.only[f] || in.only == nil && u < 0 {
			in.fired = append(in.fired, f)
			in.last[f.Kind] = time.Now()
			return f.Kind, rng
		}
	}
	return "", rng
}

// mark notes a disturbance that a step is.
func (in *injector) mark(kind Kind) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.last[kind] = time.Now()
}

// since says whether there was such a fault since.
func (in *injector) since(at time.Time, kind Kind) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	last, ever := in.last[kind]
	return ever && !last.Before(at)
}

// stop ends all faults.
func (in *injector) stop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.off = true
	clear(in.crash)
}

// armCrash lets the next call of the cloud by this controller be its last.
func (in *injector) armCrash(controller int, at crashPoint) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.crash[controller] = at
}

// crashes takes the armed crash, if it is armed for this point.
func (in *injector) crashes(controller int, at crashPoint) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.crash[controller] != at {
		return false
	}
	delete(in.crash, controller)
	return true
}

// faults are those that happened, in an order that does not depend on when.
func (in *injector) faults() []Fault {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.SortedFunc(slices.Values(in.fired), func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Call, b.Call), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Nth, b.Nth))
	})
}

// randomOf returns the randomness that belongs to a name.
func randomOf(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// between returns a duration out of a range.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)+1))
}

func slowness(rng *rand.Rand) time.Duration { return between(rng, 20*time.Second, 400*time.Second) }
