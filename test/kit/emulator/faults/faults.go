// Package faults lets a test or a person say what goes wrong in an emulated cloud, and where. Which
// request a fault strikes depends on the seed and on the order of the requests that it matches, so a
// run can be repeated.
package faults

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
)

// Fault is what goes wrong and for which requests.
type Fault struct {
	// Name in the statistics; empty means what the effect is, such as "status-500" or "lost-after".
	Name string `json:"name,omitempty"`
	// Method of the requests, such as "POST"; empty means any.
	Method string `json:"method,omitempty"`
	// Route of the requests as the API describes it, such as "/v2/volumes/{volume_id}"; empty means any.
	Route string `json:"route,omitempty"`
	// Body is a text that the request's body must contain, such as `"attach"`.
	Body string `json:"body,omitempty"`
	// Skip is how many matching requests pass before the fault strikes for the first time.
	Skip int `json:"skip,omitempty"`
	// Times is how often the fault strikes; 0 means without end.
	Times int `json:"times,omitempty"`

	Effect
}

// Lost says which part of an exchange gets lost.
type Lost string

// What can get lost: the connection is cut without an answer.
const (
	LostBefore Lost = "before" // the request: nothing happens in the cloud
	LostAfter  Lost = "after"  // the answer: what was asked for happens
)

// Effect is what happens to a request that is struck. Several can be combined.
type Effect struct {
	// Status of the answer, given instead of doing what was asked for. ID, Message and Header go with it.
	Status  int               `json:"status,omitempty"`
	ID      string            `json:"id,omitempty"`
	Message string            `json:"message,omitempty"`
	Header  map[string]string `json:"header,omitempty"`
	// Delay passes before the request takes effect, DelayAnswer after it. A client that gives up
	// meanwhile does not stop it.
	Delay       clock.Span `json:"delay,omitzero"`
	DelayAnswer clock.Span `json:"delay_answer,omitzero"`
	// Lost cuts the connection.
	Lost Lost `json:"lost,omitempty"`
	// Errored makes the operation that the request starts end in an error.
	Errored bool `json:"errored,omitempty"`
	// Takes is how long the operation that the request starts takes, instead of its usual time.
	Takes clock.Span `json:"takes,omitzero"`
	// StaleChanges and StaleAge make the answer show the cloud as it was so many changes, or so long, ago.
	StaleChanges int        `json:"stale_changes,omitempty"`
	StaleAge     clock.Span `json:"stale_age,omitzero"`
}

// Nothing reports whether the effect is none.
func (e Effect) Nothing() bool { return reflect.ValueOf(e).IsZero() }

// Kind names the effect.
func (e Effect) Kind() string {
	switch {
	case e.Status != 0:
		return fmt.Sprintf("status-%d", e.Status)
	case e.Lost != "":
		return "lost-" + string(e.Lost)
	case e.Errored:
		return "errored"
	case e.StaleChanges != 0 || e.StaleAge != (clock.Span{}):
		return "stale"
	case e.Takes != (clock.Span{}):
		return "slow-operation"
	}
	return "delay"
}

// Armed is a fault that is waiting for its requests.
type Armed struct {
	set     *Set
	fault   Fault
	matched int
	hits    int
}

// Set holds the armed faults of one emulator.
type Set struct {
	mu    sync.Mutex
	armed []*Armed
	hits  map[string]int
}

// NewSet returns a set with no fault armed.
func NewSet() *Set { return &Set{hits: map[string]int{}} }

// Arm adds a fault. When several match a request, the one that was armed first and strikes is the one.
func (s *Set) Arm(fault Fault) *Armed {
	s.mu.Lock()
	defer s.mu.Unlock()
	armed := &Armed{set: s, fault: fault}
	s.armed = append(s.armed, armed)
	return armed
}

// Disarm removes all faults.
func (s *Set) Disarm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = nil
}

// Armed returns the faults that are waiting.
func (s *Set) Armed() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Fault, 0, len(s.armed))
	for _, armed := range s.armed {
		all = append(all, armed.fault)
	}
	return all
}

// Hits returns how often faults struck, by name.
func (s *Set) Hits() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.hits)
}

// Count counts a fault that was decided elsewhere.
func (s *Set) Count(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hits[name]++
}

// ResetHits forgets how often faults struck.
func (s *Set) ResetHits() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.hits)
}

// Strike returns what happens to this request and the name of the fault; an empty name means nothing.
func (s *Set) Strike(method, route string, body []byte) (Effect, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var effect Effect
	var name string
	for _, a := range s.armed {
		if !a.fault.matches(method, route, body) {
			continue
		}
		// Every fault counts its requests, also those that another one strikes: what it does must not
		// depend on which others are armed.
		a.matched++
		if name != "" || !a.strikes() {
			continue
		}
		a.hits++
		effect, name = a.fault.Effect, a.fault.Name
		if name == "" {
			name = effect.Kind()
		}
		s.hits[name]++
	}
	return effect, name
}

func (f *Fault) matches(method, route string, body []byte) bool {
	return (f.Method == "" || f.Method == method) && (f.Route == "" || f.Route == route) &&
		strings.Contains(string(body), f.Body)
}

func (a *Armed) strikes() bool {
	return a.matched > a.fault.Skip && (a.fault.Times <= 0 || a.hits < a.fault.Times)
}

// Hits returns how often this fault has struck.
func (a *Armed) Hits() int {
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	return a.hits
}

// Disarm removes this fault.
func (a *Armed) Disarm() {
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	a.set.armed = slices.DeleteFunc(a.set.armed, func(other *Armed) bool { return other == a })
}
