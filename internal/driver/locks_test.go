package driver

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestLocks(t *testing.T) {
	tests := map[string]struct {
		first, second []Lock
		busy          bool
	}{
		"a volume and a snapshot of the same id are apart":     {[]Lock{OfVolume("a")}, []Lock{OfSnapshot("a")}, false},
		"an id and the name of one being made are apart":       {[]Lock{OfVolume("a"), OfSnapshot("a")}, []Lock{OfVolumeName("a"), OfSnapshotName("a")}, false},
		"a name is held once":                                  {[]Lock{OfVolumeName("a")}, []Lock{OfVolumeName("a")}, true},
		"names of a volume and a snapshot are apart":           {[]Lock{OfVolumeName("a")}, []Lock{OfSnapshotName("a")}, false},
		"a snapshot is held once":                              {[]Lock{OfSnapshot("a")}, []Lock{OfSnapshot("a")}, true},
		"two volumes do not meet":                              {[]Lock{OfVolume("a")}, []Lock{OfVolume("b")}, false},
		"a volume is held once":                                {[]Lock{OfVolume("a")}, []Lock{OfVolume("a")}, true},
		"two publishes share a volume":                         {[]Lock{ShareVolume("a"), OfPath("/x")}, []Lock{ShareVolume("a"), OfPath("/y")}, false},
		"two publishes do not share a target":                  {[]Lock{ShareVolume("a"), OfPath("/x")}, []Lock{ShareVolume("a"), OfPath("/x")}, true},
		"two volumes do not share a target":                    {[]Lock{ShareVolume("a"), OfPath("/x")}, []Lock{ShareVolume("b"), OfPath("/x")}, true},
		"a stage waits for nobody while a publish runs":        {[]Lock{ShareVolume("a")}, []Lock{OfVolume("a")}, true},
		"a publish waits for nobody while a stage runs":        {[]Lock{OfVolume("a")}, []Lock{ShareVolume("a")}, true},
		"a volume and a path of the same spelling are apart":   {[]Lock{OfVolume("/x")}, []Lock{OfPath("/x")}, false},
		"an id that spells another key's name stays an id":     {[]Lock{OfVolume("a")}, []Lock{OfPath("a"), OfVolume("path a")}, false},
		"nothing is taken when one of the keys is not free":    {[]Lock{OfPath("/x")}, []Lock{OfVolume("b"), OfPath("/x")}, true},
		"a shared volume stays held until the last one is out": {[]Lock{ShareVolume("a")}, []Lock{ShareVolume("a")}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var l Locks
			freeFirst, err := l.Acquire(tc.first...)
			if err != nil {
				t.Fatalf("Acquire(%v) = %v, want no error", tc.first, err)
			}
			freeSecond, err := l.Acquire(tc.second...)
			if got := errors.Is(err, fault.Busy); got != tc.busy {
				t.Fatalf("Acquire(%v) while %v is held = %v, want busy %v", tc.second, tc.first, err, tc.busy)
			}
			if tc.busy {
				freeFirst()
				if freeSecond, err = l.Acquire(tc.second...); err != nil {
					t.Fatalf("Acquire(%v) after %v was freed = %v, want no error", tc.second, tc.first, err)
				}
			} else {
				freeFirst()
				freeFirst() // a second release must not release another call's lock
				if _, err := l.Acquire(tc.second[0].exclusive()); !errors.Is(err, fault.Busy) {
					t.Fatalf("Acquire(%v alone) while the second call holds it = %v, want busy", tc.second[0], err)
				}
			}
			freeSecond()
			if len(l.held) != 0 {
				t.Errorf("after everything was freed %v is held, want nothing", l.held)
			}
		})
	}
}

func (k Lock) exclusive() Lock { return Lock{name: k.name} }

func TestLocksUnderContentionAreHeldByOneAtATime(t *testing.T) {
	var (
		l             Locks
		inside, wins  atomic.Int64
		wg            sync.WaitGroup
		attempts      = 200
		goroutines    = 8
		busyElsewhere atomic.Int64
	)
	for range goroutines {
		wg.Go(func() {
			for range attempts {
				free, err := l.Acquire(OfVolume("v"))
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
