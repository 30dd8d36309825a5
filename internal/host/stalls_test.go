package host

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// counters is a sysfs with the device 7:1.
type counters struct{ sysTree }

func newCounters(t *testing.T) counters {
	c := counters{sysTree{t, t.TempDir()}}
	c.device("loop1", "7:1")
	return c
}

// set writes the completed reads, writes, discards and flushes, and the requests in flight.
func (c counters) set(reads, writes, discards, flushes, inFlight int) {
	c.t.Helper()
	c.file("devices/loop1/stat", fmt.Sprintf("%d 0 0 0 %d 0 0 0 %d 0 0 %d 0 0 0 %d 0\n", reads, writes, inFlight, discards, flushes))
}

// A device is stalled when it has completed nothing for 30 s with requests in flight; any request that it completes, and a moment
// without requests, restarts the time.
func TestAStallIsThirtySecondsWithoutACompletedRequest(t *testing.T) {
	c, device := newCounters(t), unix.Mkdev(7, 1)
	synctest.Test(t, func(t *testing.T) {
		s := NewStalls(Sysfs(c.dir))
		want := func(what string, want bool, inFlight uint64, since time.Duration) {
			t.Helper()
			got, stalled := s.Read(device)
			if stalled != want || want && (got.InFlight != inFlight || time.Since(got.Since) != since) {
				t.Errorf("%s: %+v for %v, stalled %t, want %t with %d in flight for %v", what, got, time.Since(got.Since), stalled, want, inFlight, since)
			}
		}
		c.set(5, 5, 5, 5, 0)
		want("idle", false, 0, 0)
		time.Sleep(time.Hour)
		want("idle for long", false, 0, 0)
		c.set(5, 5, 5, 5, 3)
		want("with the first requests", false, 0, 0)
		time.Sleep(StallTime - time.Nanosecond)
		want("not yet for 30 s", false, 0, 0)
		c.set(5, 5, 5, 5, 4)
		time.Sleep(time.Nanosecond)
		want("for 30 s, and one request more", true, 4, StallTime)
		time.Sleep(time.Hour)
		want("still", true, 4, StallTime+time.Hour)
		done := [4]int{5, 5, 5, 5}
		for kind := range done {
			done[kind]++
			c.set(done[0], done[1], done[2], done[3], 4)
			want(fmt.Sprintf("one of kind %d is completed", kind), false, 0, 0)
			time.Sleep(StallTime)
			want("and then none", true, 4, StallTime)
		}
		c.set(6, 6, 6, 6, 0)
		want("all are completed by an error that counts none", false, 0, 0)
		c.set(6, 6, 6, 6, 1)
		want("a new request", false, 0, 0)
		time.Sleep(StallTime)
		want("a new request for 30 s", true, 1, StallTime)
	})
}

// A disk that completes one request in 29 s, read each 10 s, is slow and never stalled.
func TestASlowDiskIsNeverStalled(t *testing.T) {
	c, device := newCounters(t), unix.Mkdev(7, 1)
	synctest.Test(t, func(t *testing.T) {
		s, start := NewStalls(Sysfs(c.dir)), time.Now()
		for time.Since(start) < time.Hour {
			c.set(int(time.Since(start)/(29*time.Second)), 0, 0, 0, 64)
			s.Watch([]uint64{device})
			if got, stalled := s.Read(device); stalled {
				t.Fatalf("after %v: %+v", time.Since(start), got)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// Another disk that gets the number of one that is no longer watched does not inherit its time.
func TestAForgottenDeviceStartsFromZero(t *testing.T) {
	c, device := newCounters(t), unix.Mkdev(7, 1)
	c.set(0, 0, 0, 0, 1)
	synctest.Test(t, func(t *testing.T) {
		s := NewStalls(Sysfs(c.dir))
		s.Watch([]uint64{device})
		time.Sleep(StallTime)
		if _, stalled := s.Read(device); !stalled {
			t.Error("a watched device is not stalled")
		}
		s.Watch(nil)
		if got, stalled := s.Read(device); stalled {
			t.Errorf("a forgotten device is stalled: %+v", got)
		}
		must(t, os.Remove(filepath.Join(c.dir, "devices/loop1/stat")))
		time.Sleep(StallTime)
		if got, stalled := s.Read(device); stalled {
			t.Errorf("a device that is gone is stalled: %+v", got)
		}
	})
}
