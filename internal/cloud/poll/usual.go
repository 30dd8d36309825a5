package poll

import "time"

const (
	// unknownUsual is where a kind without a start value begins.
	unknownUsual = 400 * time.Millisecond
	// lateShare is how many operations may still be running at the first look. A higher share costs
	// requests, a lower one makes the quick operations wait for the slow ones.
	lateShare = 0.08
	// gain is how far one look moves the usual duration if it was late for all or for none.
	gain = 0.05
	// missGain is how far it moves at least if a second look was needed, however few that was for: one machine out of
	// ten that is a little behind costs as many requests as all ten. nearMiss is how much later than usual an operation
	// may end for that; one that takes longer says nothing of when the first look should come.
	missGain, nearMiss = 0.02, 0.125
	// convincing is how many operations in a row must differ far before they are believed at once.
	// Fewer are outliers.
	convincing = 4
	// enough is how many operations have to be seen before they tell how long one takes. Any of them may have met a
	// bad minute of the cloud.
	enough = 3
	// guessShare is where the first look comes as a part of a guess, and longestGuess the longest guess.
	guessShare   = 0.85
	longestGuess = 5 * time.Second
	// longUsual is from which usual duration on an operation gets a look at a part of it, too: what is long may have
	// become short since, and nobody would see it.
	longUsual, earlyPart = 8 * time.Second, 4
)

// usual is the age at which operations of a kind get their first look. It follows the age at which
// lateShare of them still run: each first look moves it a little, down if the operation was done
// and up, many times as far, if not, and never by little where a second look soon after found it. So it
// needs no true durations, which no look can tell: of an operation found done it is only known that it
// ended somewhere before.
//
// Steps in one direction grow, so it finds a duration that has changed for good; a single operation
// that hangs counts as one late look like any other.
type usual struct {
	at     time.Duration
	learnt bool
	// seen is how many operations have ended, until that is learnt, and shortest the quickest of them, between floor
	// and shortest.
	seen     int
	shortest time.Duration
	// told is what operations took at least that nobody waited for here.
	told time.Duration
	// searching: of the operation that at comes from it is known only that it ended between floor and at, and
	// the next looks halve that until one comes too early.
	searching bool
	floor     time.Duration
	// hits and misses are how many looks in a row found everything done, or something not.
	hits, misses float64
	// far has the ages of operations in a row that ended far from at.
	far []time.Duration
}

func newUsual(start time.Duration) *usual {
	if start <= 0 {
		start = unknownUsual
	}
	return &usual{at: start}
}

// found takes in the first look at an operation: whether it was done. share is the part that the
// operation has in its look: one of ten operations seen at once moves a tenth.
func (u *usual) found(done bool, share float64) {
	switch {
	case !u.learnt:
		return // ended says where to begin
	case done:
		u.misses, u.hits = 0, u.hits+share
		if u.searching {
			u.search(share)
			return
		}
		u.move(-gain * lateShare * share * grown(u.hits-8, 1.3, 8))
	default:
		u.searching = false
		u.hits, u.misses = 0, u.misses+share
		u.move(gain * (1 - lateShare) * share * grown(u.misses-1, 2, 2))
	}
}

// missed takes in the end, by that age, of an operation that its first look found running. share is its part in the
// look that saw the end, among those like it, and first the one in its first look, which found has counted.
func (u *usual) missed(by time.Duration, share, first float64) {
	if u.learnt && by <= u.at+time.Duration(nearMiss*float64(u.at)) {
		u.move(max(0, missGain*share-gain*(1-lateShare)*first))
	}
}

// likely is how long an operation may take as long as that is not learnt; 0: nothing is known.
func (u *usual) likely() time.Duration {
	if u.seen > 0 {
		return time.Duration(guessShare * float64(u.shortest))
	}
	return u.told
}

// early is the age of a look before the usual one, or 0.
func (u *usual) early() time.Duration {
	if !u.learnt || u.at < longUsual {
		return 0
	}
	return u.at / earlyPart
}

// ended takes in the end of an operation between two ages; after is 0 if no look saw it running. sought: it was looked
// at that early on purpose.
func (u *usual) ended(after, by time.Duration, sought bool) {
	if !u.learnt {
		if u.seen++; u.seen == 1 || by < u.shortest {
			u.shortest, u.floor = by, after
		}
		if u.seen >= enough {
			u.learnt, u.searching, u.at = true, true, u.shortest
		}
		return
	}
	if sought && by < u.at/2 {
		u.at, u.searching, u.floor, u.far = by, true, after, u.far[:0]
		return
	}
	late, early := after > 0 && by > u.at+u.at/4, by < u.at-u.at/4
	if !late && !early {
		u.far = u.far[:0]
		return
	}
	if len(u.far) > 0 && late != (u.far[0] > u.at) {
		u.far = u.far[:0]
	}
	u.far = append(u.far, by)
	if len(u.far) < convincing {
		return
	}
	nearest := u.far[0]
	for _, age := range u.far {
		if late {
			nearest = min(nearest, age)
		} else {
			nearest = max(nearest, age)
		}
	}
	u.at, u.searching, u.far = nearest, false, u.far[:0]
}

// search goes half the way to the floor, at most a quarter of the age at a time.
func (u *usual) search(share float64) {
	way := min(u.at-u.floor, u.at/2)
	u.at -= time.Duration(share * float64(way) / 4)
	u.searching = way > u.at/20
}

func (u *usual) move(part float64) {
	u.at += time.Duration(part * float64(u.at))
}

// grown returns base^n within [1, most].
func grown(n, base, most float64) float64 {
	f := 1.0
	for ; n >= 1 && f < most; n-- {
		f *= base
	}
	return min(f, most)
}
