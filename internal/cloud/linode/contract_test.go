package linode_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// open returns a controller's view of the account.
func open(t *testing.T, account *emulator.Cloud, edit ...func(*linode.Config)) *linode.Cloud {
	t.Helper()
	cfg := linode.Config{
		Config: block.Config{
			Token:    func() (string, error) { return account.Token, nil },
			Endpoint: account.URL, Region: emulator.DefaultRegion, ClusterID: "one",
			Tick:   2 * time.Millisecond,
			Limits: []budget.Window{{Calls: 1 << 20, Per: time.Minute}},
			Busy:   wait.Backoff{First: 2 * time.Millisecond, Max: 20 * time.Millisecond},
		},
		Transport: account.Client().Transport, Classes: &linode.Classes{}, // no socket
	}
	for _, e := range edit {
		e(&cfg)
	}
	c, err := linode.New(t.Context(), cfg)
	must(t, err)
	cloudtest.CloseAfter(t, c.Close)
	return c
}

// inCluster makes the controller one of another cluster.
func inCluster(id string) func(*linode.Config) {
	return func(cfg *linode.Config) { cfg.ClusterID = id }
}

// The Linodes of every account.
const (
	linode1 = 101
	linode2 = 102
	node1   = cloud.NodeID("101")
	node2   = cloud.NodeID("102")
)

// start returns an account with two Linodes.
func start(t *testing.T, opts emulator.Options) *emulator.Cloud {
	t.Helper()
	opts.InMemory = true
	account := emulator.Start(t, opts)
	for _, id := range []int{linode1, linode2} {
		account.AddLinode(emulator.Linode{ID: id})
	}
	return account
}

func harness(opts emulator.Options, edit ...func(*linode.Config)) cloudtest.Harness {
	var newest *emulator.Cloud
	opts.Decide = func(emulator.Call) faults.Effect { // requests take time, so that contexts end within them
		return faults.Effect{Delay: clock.Fixed(time.Millisecond), DelayAnswer: clock.Fixed(time.Millisecond)}
	}
	fresh := func(t *testing.T) *emulator.Cloud {
		newest = start(t, opts)
		return newest
	}
	return cloudtest.Harness{
		Zones: []string{emulator.DefaultRegion, "us-east"},
		Nodes: []cloud.NodeID{node1, node2},
		// Not what a region does by itself.
		Parameters: []cloud.Parameter{{Name: linode.ParamEncrypted, Value: "false"}},
		Slow:       opts.Durations != emulator.Durations{},
		Simulated:  true,
		New:        func(t *testing.T) cloud.Cloud { return open(t, fresh(t), edit...) },
		Pair: func(t *testing.T) (a, b cloud.Cloud) {
			account := fresh(t)
			return open(t, account), open(t, account, inCluster("two"))
		},
		Denied: func(t *testing.T) cloud.Cloud {
			return open(t, fresh(t), func(cfg *linode.Config) {
				cfg.Token = func() (string, error) { return "another", nil }
			})
		},
		Sick: func(_ *testing.T, id cloud.VolumeID) cloud.Health {
			n, _ := strconv.Atoi(string(id))
			newest.SetStatus(n, "contact_support")
			return cloud.Health{
				Kind: cloud.Inaccessible, Reason: "ContactSupport",
				Message: "volume " + string(id) + ` is in the state "contact_support"; open a ticket with its id`,
			}
		},
		Requests: func() int { return len(newest.Exchanges()) },
	}
}

// C1: the suite that every backend passes: one name is one volume.
func TestContract(t *testing.T) {
	t.Parallel()
	slow := emulator.Each(clock.Span{Least: 5 * time.Millisecond, Spread: 5 * time.Millisecond})
	slow.Delete = slow.Attach
	for name, opts := range map[string]emulator.Options{
		"changes are over at once":       {},
		"stricter answers":               {Durations: slow, Rules: strict},
		"a device that shows as it goes": {Durations: slow, Rules: emulator.Rules{ReadyWhileDetaching: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "stricter answers" {
				t.Skip("-short runs one variant of the emulated account; make verify runs all")
			}
			t.Parallel()
			t.Run("bare", func(t *testing.T) { cloudtest.Run(t, harness(opts)) })
			if opts.Rules.ReadyWhileDetaching {
				return // what the cloud's rules change is below the stack
			}
			t.Run("in the stack", func(t *testing.T) { cloudtest.Run(t, harness(opts).InStack(stack)) })
		})
	}
	t.Run("clones as snapshots", func(t *testing.T) {
		t.Parallel()
		opts := emulator.Options{Durations: slow, Rules: strict}
		opts.Rules.CopiesHaveTags = true
		on := func(cfg *linode.Config) { cfg.Snapshots = true }
		t.Run("bare", func(t *testing.T) { cloudtest.Run(t, harness(opts, on)) })
		t.Run("in the stack", func(t *testing.T) { cloudtest.Run(t, harness(opts, on).InStack(stack)) })
	})
	t.Run("few rights and slots", func(t *testing.T) {
		t.Parallel()
		opts := emulator.Options{Rules: emulator.Restricted()}
		opts.Rules.ConfigSlots = 3
		cloudtest.Run(t, harness(opts).InStack(stack))
	})
}
