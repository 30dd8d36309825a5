package account

import (
	"net/http"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

// Owner is what the owner of an account can do on every cloud: change how long operations take, D, and what
// the account enforces, R; see the counters, the operations O and the violations V. K is the id of a machine.
type Owner[K comparable, O, V, D, R any] struct {
	lock   sync.Locker
	lasts  *D
	rules  *R
	record *Record[K, O, V]
	server Server
}

// Server is the server of an account's API, as the owner sees it.
type Server interface {
	Stats() rest.Stats
	ResetStats()
}

// limited is a server whose API has rate limits.
type limited interface {
	Limits() []rest.Limit
	SetLimits(all ...rest.Limit)
}

// NewOwner returns the owner of an account that keeps its durations and rules behind a lock.
func NewOwner[K comparable, O, V, D, R any](
	lock sync.Locker, lasts *D, rules *R, record *Record[K, O, V], server Server,
) Owner[K, O, V, D, R] {
	return Owner[K, O, V, D, R]{lock: lock, lasts: lasts, rules: rules, record: record, server: server}
}

// SetDurations says how long the operations take that begin from now on.
func (o *Owner[K, O, V, D, R]) SetDurations(d D) {
	o.lock.Lock()
	defer o.lock.Unlock()
	*o.lasts = d
}

// SetRules changes what the account enforces.
func (o *Owner[K, O, V, D, R]) SetRules(change func(*R)) {
	o.lock.Lock()
	defer o.lock.Unlock()
	change(o.rules)
}

// Stats returns the counters since the start or the last reset.
func (o *Owner[K, O, V, D, R]) Stats() Stats[K] {
	return Stats[K]{Stats: o.server.Stats(), MaxParallel: o.record.MaxParallel()}
}

// ResetStats forgets counters, operations, exchanges and violations. The account stays as it is.
func (o *Owner[K, O, V, D, R]) ResetStats() {
	o.server.ResetStats()
	o.record.Reset()
}

// Operations returns the operations since the last reset, in the order in which they were accepted.
func (o *Owner[K, O, V, D, R]) Operations() []O { return o.record.Operations() }

// Violations returns what must not have happened since the last reset.
func (o *Owner[K, O, V, D, R]) Violations() []V { return o.record.Violations() }

// ServeOwner lets the owner do this over HTTP.
func (o *Owner[K, O, V, D, R]) ServeOwner(c Control) {
	Show(c, "stats", o.Stats)
	Show(c, "operations", o.Operations)
	Show(c, "violations", o.Violations)
	Show(c, "settings", o.settings)
	c.Do("POST reset", func([]byte, *http.Request) (any, error) { o.ResetStats(); return o.Stats(), nil })
	c.Do("PATCH settings", o.changeSettings)
}

// Settings are what can be changed while an account runs.
type Settings[D, R any] struct {
	Durations D            `json:"durations"`
	Rules     R            `json:"rules"`
	Limits    []rest.Limit `json:"limits"`
}

func (o *Owner[K, O, V, D, R]) settings() Settings[D, R] {
	o.lock.Lock()
	defer o.lock.Unlock()
	now := Settings[D, R]{Durations: *o.lasts, Rules: *o.rules}
	if server, has := o.server.(limited); has {
		now.Limits = server.Limits()
	}
	return now
}

// changeSettings changes the settings that a body names. Limits that are nil stay as they are: to set them
// would forget what was counted.
func (o *Owner[K, O, V, D, R]) changeSettings(body []byte, _ *http.Request) (any, error) {
	changed := o.settings()
	limits := changed.Limits
	changed.Limits = nil
	if err := ReadJSON(body, &changed); err != nil {
		return nil, err
	}
	o.SetDurations(changed.Durations)
	o.SetRules(func(r *R) { *r = changed.Rules })
	if changed.Limits == nil {
		changed.Limits = limits
	} else if server, has := o.server.(limited); has {
		server.SetLimits(changed.Limits...)
	}
	return changed, nil
}
