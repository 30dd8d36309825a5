package host

import (
	"slices"
	"sync"
	"time"
)

// StallTime is how long a device completes none of the requests that it has in flight before it counts as stalled. The kernel's own
// time limit for a request of a SCSI disk is 30 s too; a disk that is only slow completes some meanwhile.
const StallTime = 30 * time.Second

// Stalls finds the block devices that hang, by the kernel's counters alone. It is safe for concurrent use.
//
// If two readings find requests in flight and the same number of completed ones, the same requests were in flight all the time. So a
// device that completes anything between two readings is never stalled, however far apart these are.
type Stalls struct {
	sysfs Sysfs

	mu      sync.Mutex
	devices map[uint64]reading
}

// reading is the first of the readings of a device since it has completed a request.
type reading struct {
	at        time.Time
	completed uint64
}

// Stall is what is known of a device that hangs.
type Stall struct {
	// Since is when the requests were first found in flight.
	Since    time.Time
	InFlight uint64
}

// NewStalls returns a Stalls that has read no device.
func NewStalls(sysfs Sysfs) *Stalls { return &Stalls{sysfs: sysfs, devices: map[uint64]reading{}} }

// Watch reads these devices and forgets all others. Call it at intervals that are much shorter than StallTime.
func (s *Stalls) Watch(numbers []uint64) {
	s.mu.Lock()
	for number := range s.devices {
		if !slices.Contains(numbers, number) {
			delete(s.devices, number)
		}
	}
	s.mu.Unlock()
	for _, number := range numbers {
		s.Read(number)
	}
}

// Read reads a device and reports whether it is stalled. A device whose counters cannot be read is not.
func (s *Stalls) Read(number uint64) (Stall, bool) {
	stats, ok, err := s.sysfs.BlockStats(number)
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || !ok || stats.InFlight == 0 {
		delete(s.devices, number)
		return Stall{}, false
	}
	first, waiting := s.devices[number]
	if !waiting || first.completed != stats.Completed() {
		first = reading{now, stats.Completed()}
		s.devices[number] = first
	}
	return Stall{Since: first.at, InFlight: stats.InFlight}, now.Sub(first.at) >= StallTime
}
