package linode

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/rest"
)

// Settings are what can be changed while the account runs.
type Settings struct {
	Durations Durations    `json:"durations"`
	Rules     Rules        `json:"rules"`
	Limits    []rest.Limit `json:"limits"`
}

// controlRoutes serves the owner's side to people and to other programs, below /_emulator/. It needs no
// token: whoever reaches a loopback address of this machine may do it.
func (c *Cloud) controlRoutes(mux *http.ServeMux) {
	show := func(path string, get func() any) {
		mux.HandleFunc("GET /_emulator/"+path, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, get()) })
	}
	show("stats", func() any { return c.Stats() })
	show("exchanges", func() any { return c.Exchanges() })
	show("operations", func() any { return c.Operations() })
	show("violations", func() any { return c.Violations() })
	show("volumes", func() any { return c.Volumes() })
	show("linodes", func() any { return c.Linodes() })
	show("contract", func() any { return c.Contract() })
	show("faults", func() any { return c.server.Faults.Armed() })
	show("settings", func() any { return c.settings() })

	do := func(pattern string, f func(body []byte, r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
			var result any
			if err == nil {
				result, err = f(body, r)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			writeJSON(w, result)
		})
	}
	do("POST /_emulator/reset", func([]byte, *http.Request) (any, error) { c.ResetStats(); return c.Stats(), nil })
	do("POST /_emulator/faults", c.controlArm)
	do("DELETE /_emulator/faults", func([]byte, *http.Request) (any, error) { c.Disarm(); return []Fault{}, nil })
	do("PATCH /_emulator/settings", c.controlSettings)
	do("POST /_emulator/linodes", c.controlAddLinode)
	do("DELETE /_emulator/linodes/{linode}", c.controlRemoveLinode)
}

func (c *Cloud) settings() Settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Settings{Durations: c.lasts, Rules: c.rules, Limits: c.server.Limits()}
}

func (c *Cloud) controlArm(body []byte, _ *http.Request) (any, error) {
	var fault Fault
	if err := readJSON(body, &fault); err != nil {
		return nil, err
	}
	c.Arm(fault)
	return c.server.Faults.Armed(), nil
}

// controlSettings changes what the body names and leaves the rest.
func (c *Cloud) controlSettings(body []byte, _ *http.Request) (any, error) {
	changed := c.settings()
	limits := changed.Limits
	changed.Limits = nil
	if err := readJSON(body, &changed); err != nil {
		return nil, err
	}
	c.SetDurations(changed.Durations)
	c.SetRules(func(r *Rules) { *r = changed.Rules })
	if changed.Limits != nil {
		c.SetLimits(changed.Limits...)
		limits = changed.Limits
	}
	changed.Limits = limits
	return changed, nil
}

func (c *Cloud) controlAddLinode(body []byte, _ *http.Request) (any, error) {
	var d Linode
	if len(body) > 0 {
		if err := readJSON(body, &d); err != nil {
			return nil, err
		}
	}
	id := c.AddLinode(d)
	return map[string]any{"id": id, "metadata": c.Metadata(id)}, nil
}

func (c *Cloud) controlRemoveLinode(_ []byte, r *http.Request) (any, error) {
	id, err := strconv.Atoi(r.PathValue("linode"))
	if err != nil {
		return nil, err
	}
	var lag time.Duration
	if text := r.URL.Query().Get("lag"); text != "" {
		if lag, err = time.ParseDuration(text); err != nil {
			return nil, err
		}
	}
	c.RemoveLinode(id, lag)
	return c.Linodes(), nil
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(v) // a client that went away needs no answer
}

// readJSON reads one value and refuses unknown fields: a misspelt fault would never strike.
func readJSON(body []byte, v any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return err
	}
	if decoder.More() {
		return errors.New("more than one JSON value")
	}
	return nil
}
