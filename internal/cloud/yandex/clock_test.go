package yandex

import (
	"testing"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Whatever the two clocks differ by, a moment is never taken for later than it was: not that of a disk which this
// program has made, nor that of one whose create it has only joined.
func TestNoMomentIsTakenForLaterThanItWas(t *testing.T) {
	const answer = 30 * time.Millisecond // a request takes so long, and arrives after half of it
	start := time.Now()
	for name, ahead := range map[string]time.Duration{
		"the clocks agree": 0, "the cloud's is ahead": 17*time.Second + 300*time.Millisecond, "the cloud's is behind": -41*time.Minute - 1,
	} {
		t.Run(name, func(t *testing.T) {
			stamp := func(at time.Time) time.Time { return at.Add(ahead).Truncate(time.Second) }
			var c clock
			if at := c.moment(stamp(start), start); !at.IsZero() {
				t.Errorf("a moment is known before the cloud's clock is: %s", at)
			}
			for n := range 40 {
				sent := start.Add(time.Duration(n) * 370 * time.Millisecond)
				c.saw(sent, &operation.Operation{CreatedAt: timestamppb.New(stamp(sent.Add(answer / 2)))})
				for _, tc := range []struct {
					what        string
					made, asked time.Time
					exact       bool
				}{
					{"one's own disk", sent.Add(answer / 2), sent, n > 4},
					{"somebody else's disk", sent.Add(answer / 2), time.Time{}, false},
					{"a disk that was joined", sent.Add(-3 * time.Second), sent, false},
					{"a disk that was joined after an hour", sent.Add(-time.Hour), sent, false},
				} {
					at := c.moment(stamp(tc.made), tc.asked)
					if at.After(tc.made) || tc.exact && !at.Equal(tc.asked) || tc.made.Sub(at) > 4*time.Second {
						t.Errorf("%s was made at %s, and is taken for made %s before that", tc.what, tc.made.Sub(start), tc.made.Sub(at))
					}
				}
			}
		})
	}
}

// What was seen of the clocks is forgotten: they drift.
func TestWhatWasSeenOfClocksIsForgotten(t *testing.T) {
	var c clock
	start := time.Now().Truncate(time.Second)
	saw := func(after, ahead time.Duration) {
		c.saw(start.Add(after), &operation.Operation{CreatedAt: timestamppb.New(start.Add(after + ahead + time.Nanosecond))})
	}
	saw(0, 0)
	saw(4*time.Minute, time.Second)
	if at := c.here(start.Add(time.Minute)); !at.Equal(start.Add(time.Minute - clockMargin - time.Nanosecond)) {
		t.Errorf("after 4 minutes: %s", at.Sub(start))
	}
	for minute := time.Duration(6); minute < 20; minute += 3 {
		saw(minute*time.Minute, 2*time.Second)
	}
	if at := c.here(start.Add(time.Minute)); !at.Equal(start.Add(time.Minute - 2*time.Second - clockMargin - time.Nanosecond)) {
		t.Errorf("after 20 minutes: %s", at.Sub(start))
	}
}
