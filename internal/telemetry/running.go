package telemetry

import (
	"sync"
	"time"
)

// Running has the operations under way. The zero value is empty, and Begin of nil does nothing.
type Running struct {
	mu    sync.Mutex
	last  uint64
	began map[uint64]time.Time
}

// Begin adds an operation until the returned function is called.
func (s *Running) Begin() (end func()) {
	if s == nil {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began == nil {
		s.began = map[uint64]time.Time{}
	}
	s.last++
	id := s.last
	s.began[id] = time.Now()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.began, id)
	}
}

// Oldest returns the age of the oldest operation; 0 if there is none.
func (s *Running) Oldest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest time.Duration
	for _, began := range s.began {
		oldest = max(oldest, time.Since(began))
	}
	return oldest
}
