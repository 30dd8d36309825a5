package digitalocean

import (
	"net/http"
	"strconv"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
)

// Settings are what can be changed while the account runs.
type Settings = account.Settings[Durations, Rules]

// control adds to the owner's side what only this cloud has.
func (c *Cloud) control(control account.Control) {
	account.Show(control, "stats", c.Stats)
	account.Show(control, "operations", c.Operations)
	account.Show(control, "violations", c.Violations)
	account.Show(control, "volumes", c.Volumes)
	account.Show(control, "snapshots", c.Snapshots)
	control.Do("POST reset", func([]byte, *http.Request) (any, error) { c.ResetStats(); return c.Stats(), nil })
	account.ServeSettings(control, c.settings, c.setSettings)
	account.Machines[int, Droplet]{
		ParseID: strconv.Atoi, List: c.Droplets, Add: c.AddDroplet, Remove: c.RemoveDroplet, Metadata: c.Metadata,
	}.Serve(control, "droplets")
}

func (c *Cloud) settings() Settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Settings{Durations: c.lasts, Rules: c.rules, Limits: c.Server.Limits()}
}

func (c *Cloud) setSettings(s Settings) {
	c.SetDurations(s.Durations)
	c.SetRules(func(r *Rules) { *r = s.Rules })
	if s.Limits != nil {
		c.SetLimits(s.Limits...)
	}
}
