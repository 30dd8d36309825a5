package clock

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

// Span is a duration that may vary. As text, in flags and JSON, it is "2s" or "2s+500ms": at least
// two seconds and up to half a second more.
type Span struct {
	Least, Spread time.Duration
}

// Fixed returns the span that is always d.
func Fixed(d time.Duration) Span { return Span{Least: d} }

// Pick returns the duration that belongs to roll, a number from 0 up to 1.
func (s Span) Pick(roll float64) time.Duration {
	return s.Least + time.Duration(roll*float64(s.Spread))
}

// String is the text form.
func (s Span) String() string {
	if s.Spread == 0 {
		return s.Least.String()
	}
	return s.Least.String() + "+" + s.Spread.String()
}

// MarshalText writes the text form.
func (s Span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the text form.
func (s *Span) UnmarshalText(text []byte) error {
	least, spread, both := strings.Cut(string(text), "+")
	var read Span
	var err error
	if read.Least, err = time.ParseDuration(least); err != nil {
		return err
	}
	if both {
		if read.Spread, err = time.ParseDuration(spread); err != nil {
			return err
		}
	}
	const longest = 10000 * time.Hour
	if read.Least < 0 || read.Spread < 0 || read.Least > longest || read.Spread > longest {
		return fmt.Errorf("duration %q is not between 0 and %s", text, longest)
	}
	*s = read
	return nil
}

// Roll returns a number from 0 up to 1 that depends on the seed and on what is decided, and on nothing
// else: two runs with one seed decide alike, however their requests are interleaved.
func Roll(seed uint64, what ...any) float64 {
	hash := fnv.New64a()
	fmt.Fprintln(hash, append([]any{seed}, what...)...)
	x := hash.Sum64()
	// FNV leaves the high bits of short texts alike; this is the finalizer of splitmix64.
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11) / (1 << 53)
}
