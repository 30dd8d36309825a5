package node

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestLocks(t *testing.T) {
	tests := map[string]struct {
		first, second []lockKey
		busy          bool
	}{
		"two volumes do not meet":                              {[]lockKey{wholeVolume("a")}, []lockKey{wholeVolume("b")}, false},
		"a volume is held once":                                {[]lockKey{wholeVolume("a")}, []lockKey{wholeVolume("a")}, true},
		"two publishes share a volume":                         {[]lockKey{sharedVolume("a"), wholePath("/x")}, []lockKey{sharedVolume("a"), wholePath("/y")}, false},
		"two publishes do not share a target":                  {[]lockKey{sharedVolume("a"), wholePath("/x")}, []lockKey{sharedVolume("a"), wholePath("/x")}, true},
		"two volumes do not share a target":                    {[]lockKey{sharedVolume("a"), wholePath("/x")}, []lockKey{sharedVolume("b"), wholePath("/x")}, true},
		"a stage waits for nobody while a publish runs":        {[]lockKey{sharedVolume("a")}, []lockKey{wholeVolume("a")}, true},
		"a publish waits for nobody while a stage runs":        {[]lockKey{wholeVolume("a")}, []lockKey{sharedVolume("a")}, true},
		"a volume and a path of the same spelling are apart":   {[]lockKey{wholeVolume("/x")}, []lockKey{wholePath("/x")}, false},
		"an id that spells another key's name stays an id":     {[]lockKey{wholeVolume("a")}, []lockKey{wholePath("a"), wholeVolume("path a")}, false},
		"nothing is taken when one of the keys is not free":    {[]lockKey{wholePath("/x")}, []lockKey{wholeVolume("b"), wholePath("/x")}, true},
		"a shared volume stays held until the last one is out": {[]lockKey{sharedVolume("a")}, []lockKey{sharedVolume("a")}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var l locks
			freeFirst, err := l.acquire("first", tc.first...)
			if err != nil {
				t.Fatalf("claim(%v) = %v, want no error", tc.first, err)
			}
			freeSecond, err := l.acquire("second", tc.second...)
			if got := errors.Is(err, fault.Busy); got != tc.busy {
				t.Fatalf("claim(%v) while %v is held = %v, want busy %v", tc.second, tc.first, err, tc.busy)
			}
			if tc.busy {
				freeFirst()
				if freeSecond, err = l.acquire("second again", tc.second...); err != nil {
					t.Fatalf("claim(%v) after %v was freed = %v, want no error", tc.second, tc.first, err)
				}
			} else {
				freeFirst()
				freeFirst() // freeing twice must not free what somebody else holds
				if _, err := l.acquire("third", tc.second[0].exclusive()); !errors.Is(err, fault.Busy) {
					t.Fatalf("claim(%v alone) while the second call holds it = %v, want busy", tc.second[0], err)
				}
			}
			freeSecond()
			if len(l.held) != 0 {
				t.Errorf("after everything was freed %v is held, want nothing", l.held)
			}
		})
	}
}

func (k lockKey) exclusive() lockKey { return lockKey{name: k.name} }

func TestLocksUnderContentionAreHeldByOneAtATime(t *testing.T) {
	var (
		l             locks
		inside, wins  atomic.Int64
		wg            sync.WaitGroup
		attempts      = 200
		goroutines    = 8
		busyElsewhere atomic.Int64
	)
	for range goroutines {
		wg.Go(func() {
			for range attempts {
				free, err := l.acquire("contend", wholeVolume("v"))
				if err != nil {
					busyElsewhere.Add(1)
					continue
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d callers hold the volume, want 1", n)
				}
				wins.Add(1)
				inside.Add(-1)
				free()
			}
		})
	}
	wg.Wait()
	if got := wins.Load() + busyElsewhere.Load(); got != int64(attempts*goroutines) {
		t.Errorf("%d attempts were answered, want %d", got, attempts*goroutines)
	}
}
