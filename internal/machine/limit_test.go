package machine_test

import (
	"errors"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/machine"
)

// A5, A6: the limit is the number of slots, minus other disks, minus reserved slots, and never 0, which would mean no limit.
func TestTheLimitIsWhatTheMachineHasPlacesFor(t *testing.T) {
	for name, tc := range map[string]struct{ max, places, others, reserved, want int64 }{
		"8 GiB with two local disks":       {0, 8, 2, 0, 6},
		"16 GiB with two":                  {0, 16, 2, 0, 14},
		"96 GiB with two":                  {0, 64, 2, 0, 62},
		"1 GiB with 8":                     {0, 8, 8, 0, 1},
		"1 GiB with more than it can have": {0, 8, 9, 0, 1},
		"some left to others":              {0, 16, 2, 4, 10},
		"all left to others":               {0, 16, 2, 60, 1},
		"given by the flag":                {5, 16, 2, 4, 5},
	} {
		t.Run(name, func(t *testing.T) {
			l := machine.Limit{Max: tc.max, MaxDisks: tc.places, Reserved: tc.reserved, Foreign: func() (int64, error) { return tc.others, nil }}
			if got, err := l.Volumes(); got != tc.want || err != nil {
				t.Errorf("Volumes = %d, %v, want %d", got, err, tc.want)
			}
		})
	}
	l := machine.Limit{MaxDisks: 8, Foreign: func() (int64, error) { return 0, errors.New("no /sys") }}
	if got, err := l.Volumes(); err == nil {
		t.Errorf("Volumes = %d where the other disks cannot be counted", got)
	}
}
