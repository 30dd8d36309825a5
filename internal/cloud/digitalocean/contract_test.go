package digitalocean_test

import (
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// open returns a controller's view of the account.
func open(t *testing.T, account *emulator.Cloud, edit ...func(*digitalocean.Config)) *digitalocean.Cloud {
	t.Helper()
	cfg := digitalocean.Config{
		Config: block.Config{
			Token:    func() (string, error) { return account.Token, nil },
			Endpoint: account.URL, Region: emulator.DefaultRegion, ClusterID: "one",
			Tick:   2 * time.Millisecond,
			Limits: []budget.Window{{Calls: 1 << 20, Per: time.Minute}},
			Busy:   wait.Backoff{First: 2 * time.Millisecond, Max: 20 * time.Millisecond},
		},
		Transport: account.Client().Transport, // no socket
	}
	for _, e := range edit {
		e(&cfg)
	}
	c, err := digitalocean.New(t.Context(), cfg)
	must(t, err)
	cloudtest.CloseAfter(t, c.Close)
	return c
}

// inCluster makes the controller one of another cluster.
func inCluster(id string) func(*digitalocean.Config) {
	return func(cfg *digitalocean.Config) { cfg.ClusterID = id }
}

// The droplets of every account.
const (
	droplet1 = 101
	droplet2 = 102
	node1    = cloud.NodeID("101")
	node2    = cloud.NodeID("102")
)

// start returns an account with two droplets.
func start(t *testing.T, opts emulator.Options) *emulator.Cloud {
	t.Helper()
	opts.InMemory = true
	account := emulator.Start(t, opts)
	for _, id := range []int{droplet1, droplet2} {
		account.AddDroplet(emulator.Droplet{ID: id})
	}
	return account
}

func harness(opts emulator.Options) cloudtest.Harness {
	var newest *emulator.Cloud
	opts.Decide = func(emulator.Call) faults.Effect { // requests take time, so that contexts end within them
		return faults.Effect{Delay: clock.Fixed(time.Millisecond), DelayAnswer: clock.Fixed(time.Millisecond)}
	}
	fresh := func(t *testing.T) *emulator.Cloud {
		newest = start(t, opts)
		return newest
	}
	return cloudtest.Harness{
		Zones:     []string{emulator.DefaultRegion, "nyc3"},
		Nodes:     []cloud.NodeID{node1, node2},
		Slots:     profile.DigitalOcean.Slots,
		Slow:      opts.Durations != emulator.Durations{},
		Simulated: true,
		New:       func(t *testing.T) cloud.Cloud { return open(t, fresh(t)) },
		Pair: func(t *testing.T) (a, b cloud.Cloud) {
			account := fresh(t)
			return open(t, account), open(t, account, inCluster("two"))
		},
		Denied: func(t *testing.T) cloud.Cloud {
			return open(t, fresh(t), func(cfg *digitalocean.Config) {
				cfg.Token = func() (string, error) { return "another", nil }
			})
		},
		Requests: func() int { return len(newest.Exchanges()) },
	}
}

// A7, C1: the suite that every backend passes: one name is one volume, and a full droplet is Exhausted.
func TestContract(t *testing.T) {
	t.Parallel()
	slow := emulator.Actions(clock.Span{Least: 5 * time.Millisecond, Spread: 5 * time.Millisecond})
	for name, opts := range map[string]emulator.Options{
		"actions are over at once":      {},
		"actions take time":             {Durations: slow},
		"changes show before their end": {Durations: slow, Rules: emulator.Rules{ChangeOnAccept: true}},
		"a restore has the size asked":  {Rules: emulator.Rules{RestoreHonoursSize: true}},
		"the token has custom scopes":   {Rules: emulator.Rules{Scopes: emulator.DocumentedScopes}},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "actions take time" {
				t.Skip("-short runs one variant of the emulated account; make verify runs all")
			}
			t.Parallel()
			t.Run("bare", func(t *testing.T) { cloudtest.Run(t, harness(opts)) })
			if opts.Rules != (emulator.Rules{}) {
				return // what the cloud's rules change is below the stack
			}
			t.Run("in the stack", func(t *testing.T) { cloudtest.Run(t, harness(opts).InStack(stack)) })
		})
	}
}
