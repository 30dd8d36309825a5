package rest

import (
	"maps"
	"net/http"
	"sync"
	"time"
)

// Exchange is one request and what became of it, by the wall clock.
type Exchange struct {
	Method string `json:"method"`
	Route  string `json:"route"`
	Path   string `json:"path"`
	// Status of the answer; 0 when the connection was cut.
	Status int       `json:"status"`
	Start  time.Time `json:"start"`
	End    time.Time `json:"end"`
	// Fault is the name of the fault that struck it, if one did.
	Fault string `json:"fault,omitempty"`
}

// Stats counts the requests since the start or the last reset. Only the API counts: metadata and
// control requests do not.
type Stats struct {
	// Routes counts by "METHOD /route".
	Routes map[string]int `json:"routes"`
	// Statuses counts by the answer's status; 0 is a cut connection.
	Statuses map[int]int `json:"statuses"`
	// Reads are GET and HEAD requests, Writes all others.
	Reads  int `json:"reads"`
	Writes int `json:"writes"`
	// Refused is how many were answered 429.
	Refused int `json:"refused"`
	// Faults counts how often faults struck, by name.
	Faults map[string]int `json:"faults"`
}

// mostExchanges bounds the memory of a long run; the counters go on.
const mostExchanges = 1 << 16

type recorder struct {
	mu    sync.Mutex
	stats Stats
	log   []Exchange
}

func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats = Stats{Routes: map[string]int{}, Statuses: map[int]int{}}
	r.log = nil
}

func (r *recorder) add(e Exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Routes[e.Method+" "+e.Route]++
	r.stats.Statuses[e.Status]++
	if e.Method == http.MethodGet || e.Method == http.MethodHead {
		r.stats.Reads++
	} else {
		r.stats.Writes++
	}
	if e.Status == http.StatusTooManyRequests {
		r.stats.Refused++
	}
	if len(r.log) < mostExchanges {
		r.log = append(r.log, e)
	}
}

func (r *recorder) read() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	stats := r.stats
	stats.Routes, stats.Statuses = maps.Clone(stats.Routes), maps.Clone(stats.Statuses)
	return stats
}
