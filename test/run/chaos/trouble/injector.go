package trouble

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Injector decides what goes wrong. Its decisions depend only on the seed, the call, the object and how
// many such calls there were before, so they do not change when other steps are left out.
type Injector struct {
	Seed uint64
	// only are the faults that happen; nil: they are drawn.
	only map[Fault]bool

	mu    sync.Mutex
	seen  map[string]int
	fired []Fault
	last  map[Kind]time.Time
	off   bool
	// crash holds, for each controller, where its next call of the cloud kills it.
	crash map[int]CrashPoint
}

// NewInjector makes one for the run of a seed. Only are the faults that happen; nil: they are drawn from the seed.
func NewInjector(seed uint64, only []Fault) *Injector {
	in := &Injector{Seed: seed, seen: map[string]int{}, last: map[Kind]time.Time{}, crash: map[int]CrashPoint{}}
	if only != nil {
		in.only = map[Fault]bool{}
		for _, f := range only {
			in.only[f] = true
		}
	}
	return in
}

// Decide counts the call and says what goes wrong with it. The source of randomness is the call's own.
func (in *Injector) Decide(call, object string, chances []Chance) (Kind, *rand.Rand) {
	in.mu.Lock()
	defer in.mu.Unlock()
	key := call + " " + object
	in.seen[key]++
	f := Fault{Call: call, Object: object, Nth: in.seen[key]}
	rng := Random(in.Seed, fmt.Sprint(key, f.Nth))
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

// Mark notes a disturbance that a step is.
func (in *Injector) Mark(kind Kind) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.last[kind] = time.Now()
}

// Since says whether there was such a fault since.
func (in *Injector) Since(at time.Time, kind Kind) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	last, ever := in.last[kind]
	return ever && !last.Before(at)
}

// Stop ends all faults.
func (in *Injector) Stop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.off = true
	clear(in.crash)
}

// ArmCrash lets the next call of the cloud by this controller be its last.
func (in *Injector) ArmCrash(controller int, at CrashPoint) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.crash[controller] = at
}

// Crashes takes the armed crash, if it is armed for this point.
func (in *Injector) Crashes(controller int, at CrashPoint) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.crash[controller] != at {
		return false
	}
	delete(in.crash, controller)
	return true
}

// Faults are those that happened, in an order that does not depend on when.
func (in *Injector) Faults() []Fault {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.SortedFunc(slices.Values(in.fired), func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Call, b.Call), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Nth, b.Nth))
	})
}

// Random returns the randomness that belongs to a name.
func Random(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// Between returns a duration out of a range.
func Between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)+1))
}
