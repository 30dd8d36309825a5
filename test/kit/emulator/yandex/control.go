package yandex

import (
	"net/http"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
)

// Settings are what can be changed while the folder runs. There are no rate limits.
type Settings = account.Settings[Durations, Rules]

// control adds to the owner's side what only this cloud has.
func (c *Cloud) control(control account.Control) {
	account.Show(control, "stats", c.Stats)
	account.Show(control, "operations", c.Operations)
	account.Show(control, "violations", c.Violations)
	account.Show(control, "volumes", c.Disks)
	account.Show(control, "disks", c.Disks)
	account.Show(control, "snapshots", c.Snapshots)
	control.Do("POST reset", func([]byte, *http.Request) (any, error) { c.ResetStats(); return c.Stats(), nil })
	control.Do("POST keys", func([]byte, *http.Request) (any, error) {
		key, err := c.NewKey()
		return rawJSON(key), err
	})
	control.Do("POST placement_groups", func(body []byte, _ *http.Request) (any, error) {
		var g PlacementGroup
		if err := account.ReadJSON(body, &g); err != nil {
			return nil, err
		}
		return map[string]string{"id": c.AddPlacementGroup(g)}, nil
	})
	control.Do("POST instances/{instance}/relocate", c.relocateInstance)
	account.ServeSettings(control, c.settings, c.setSettings)
	account.Machines[string, Instance]{
		ParseID: func(id string) (string, error) { return id, nil },
		List:    c.Instances, Add: c.AddInstance, Remove: c.RemoveInstance, Metadata: c.Metadata,
	}.Serve(control, "instances")
}

type rawJSON []byte

// MarshalJSON is the text itself.
func (r rawJSON) MarshalJSON() ([]byte, error) { return r, nil }

func (c *Cloud) settings() Settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Settings{Durations: c.lasts, Rules: c.rules}
}

func (c *Cloud) setSettings(s Settings) {
	c.SetDurations(s.Durations)
	c.SetRules(func(r *Rules) { *r = s.Rules })
}
