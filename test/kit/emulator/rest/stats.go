package rest

import (
	"maps"
	"net/http"
	"slices"
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

// Recorder counts the exchanges of an API and keeps a log of them. The zero value is empty.
type Recorder struct {
	mu    sync.Mutex
	stats Stats
	log   []Exchange
}

// Count says as what an exchange counts besides its route and status. What is neither a read nor a write
// is none of the API's business, such as a token.
type Count struct{ Read, Write, Refused bool }

// count is how an HTTP API counts.
func count(e Exchange) Count {
	read := e.Method == http.MethodGet || e.Method == http.MethodHead
	return Count{Read: read, Write: !read, Refused: e.Status == http.StatusTooManyRequests}
}

// Reset forgets everything.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats, r.log = Stats{}, nil
}

// Add counts an exchange, by a name of its route.
func (r *Recorder) Add(route string, e Exchange, as Count) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stats.Routes == nil {
		r.stats.Routes, r.stats.Statuses = map[string]int{}, map[int]int{}
	}
	r.stats.Routes[route]++
	r.stats.Statuses[e.Status]++
	for counter, counts := range map[*int]bool{
		&r.stats.Reads: as.Read, &r.stats.Writes: as.Write, &r.stats.Refused: as.Refused,
	} {
		if counts {
			*counter++
		}
	}
	if len(r.log) < mostExchanges {
		r.log = append(r.log, e)
	}
}

// Stats returns the counters; those of the faults are not known here.
func (r *Recorder) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	stats := r.stats
	stats.Routes, stats.Statuses = map[string]int{}, map[int]int{}
	maps.Copy(stats.Routes, r.stats.Routes)
	maps.Copy(stats.Statuses, r.stats.Statuses)
	return stats
}

// Exchanges returns the log of the requests since the last reset, bounded.
func (r *Recorder) Exchanges() []Exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log)
}
