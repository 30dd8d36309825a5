package account

import (
	"net/http"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

// Settings are what can be changed while an account runs: how long operations take, D, and what it enforces, R.
type Settings[D, R any] struct {
	lock  sync.Locker
	lasts *D
	rules *R
	// server has the rate limits; nil where the API has none.
	server *rest.Server
}

// NewSettings returns the settings of an account that keeps them behind a lock.
func NewSettings[D, R any](lock sync.Locker, lasts *D, rules *R, server *rest.Server) Settings[D, R] {
	return Settings[D, R]{lock: lock, lasts: lasts, rules: rules, server: server}
}

// SetDurations says how long the operations take that begin from now on.
func (s Settings[D, R]) SetDurations(d D) {
	s.lock.Lock()
	defer s.lock.Unlock()
	*s.lasts = d
}

// SetRules changes what the account enforces.
func (s Settings[D, R]) SetRules(change func(*R)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	change(s.rules)
}

// shown is what HTTP has of the settings.
type shown[D, R any] struct {
	Durations D            `json:"durations"`
	Rules     R            `json:"rules"`
	Limits    []rest.Limit `json:"limits"`
}

func (s Settings[D, R]) show() shown[D, R] {
	s.lock.Lock()
	defer s.lock.Unlock()
	now := shown[D, R]{Durations: *s.lasts, Rules: *s.rules}
	if s.server != nil {
		now.Limits = s.server.Limits()
	}
	return now
}

// change changes the settings that a body names. Limits that are nil stay as they are: to set them would forget
// what was counted.
func (s Settings[D, R]) change(body []byte, _ *http.Request) (any, error) {
	changed := s.show()
	changed.Limits = nil
	if err := ReadJSON(body, &changed); err != nil {
		return nil, err
	}
	s.SetDurations(changed.Durations)
	s.SetRules(func(r *R) { *r = changed.Rules })
	if changed.Limits != nil && s.server != nil {
		s.server.SetLimits(changed.Limits...)
	}
	return s.show(), nil
}

// ServeSettings shows the settings over HTTP, and changes them.
func (s Settings[D, R]) ServeSettings(c Control) {
	Show(c, "settings", s.show)
	c.Do("PATCH settings", s.change)
}
