package linode

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
	control.Do("POST reset", func([]byte, *http.Request) (any, error) { c.ResetStats(); return c.Stats(), nil })
	control.Do("POST linodes/{linode}/reboot", func(_ []byte, r *http.Request) (any, error) {
		id, err := strconv.Atoi(r.PathValue("linode"))
		if err == nil {
			c.Reboot(id)
		}
		return c.Volumes(), err
	})
	account.ServeSettings(control, c.settings, c.setSettings)
	account.Machines[int, Linode]{
		ParseID: strconv.Atoi, List: c.Linodes, Add: c.AddLinode, Remove: c.RemoveLinode, Metadata: c.Metadata,
	}.Serve(control, "linodes")
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
