package middleware_test

import (
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// harness returns the harness of accounts with this configuration, inside the stack.
func harness(cfg memory.Config) cloudtest.Harness {
	if cfg.Space == 0 {
		cfg.Space = 90 * cloud.GiB // less than the largest volume
	}
	cfg.Slots = 8
	var newest *memory.Account
	h := cloudtest.Harness{
		Zones: []string{"zone-a", "zone-b"},
		Nodes: []cloud.NodeID{"node-1", "node-2"},
		Slots: cfg.Slots,
		Lag:   cfg.ReadLag,
		Slow:  cfg.ReadLag > 0 || cfg.OperationTime > 0,
		New: func(*testing.T) cloud.Cloud {
			newest = memory.NewAccount(cfg)
			return newest.Cluster("one")
		},
		Pair: func(*testing.T) (a, b cloud.Cloud) {
			account := memory.NewAccount(cfg)
			return account.Cluster("one"), account.Cluster("two")
		},
		Denied: func(*testing.T) cloud.Cloud {
			c := memory.New(cfg)
			c.Account().Arm(memory.CallCheck, memory.Refuse(fault.Denied))
			return c
		},
		Unfit: func(t *testing.T, id cloud.VolumeID) func() {
			mark := func(why string) {
				if err := newest.SetUnfit(id, why); err != nil {
					t.Error(err)
				}
			}
			mark("it is written to and cannot be stopped")
			return func() { mark("") }
		},
		InUse: func(t *testing.T, id cloud.VolumeID) func() {
			mark := func(inUse bool) {
				if err := newest.SetInUse(id, inUse); err != nil {
					t.Error(err)
				}
			}
			mark(true)
			return func() { mark(false) }
		},
	}
	if len(cfg.Places) > 0 {
		h.Elsewhere = cloudtest.Elsewhere{Place: cfg.Places[0], Volume: cloud.VolumeID(cfg.Places[0] + "/vol-1"), Snapshot: cloud.SnapshotID(cfg.Places[0] + "/snap-1")}
	}
	if cfg.Capabilities.Scope == "" || len(cfg.Capabilities.Parameters) > 0 {
		h.Parameters = []cloud.Parameter{{Name: "tier", Value: "gold"}, {Name: "type", Value: "fast"}}
	}
	return h.InStack(func(c cloud.Cloud) cloud.Cloud { return middleware.Stack(c, wait.Backoff{}) })
}

func TestContract(t *testing.T) {
	little := memory.Full()
	little.Attach, little.Expand, little.Snapshots, little.Clones, little.Capacity = false, false, false, false, false
	little.Health, little.Modify = false, false
	little.Scope, little.Parameters = cloud.ScopeNode, nil
	for name, cfg := range map[string]memory.Config{
		"everything":          {},
		"nothing but volumes": {Capabilities: little},
		"names per cluster":   {NamesPerCluster: true},
		"other places":        {Places: []string{"island"}},
		"changes take time":   {OperationTime: 3 * time.Millisecond},
		// A bare backend can show the lag of its cloud. The decorators have to tolerate it.
		"reads lag a tick behind writes":                  {ReadLag: 10 * time.Millisecond},
		"reads lag a tick behind writes, which take time": {ReadLag: 10 * time.Millisecond, OperationTime: 3 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) { cloudtest.Run(t, harness(cfg)) })
	}
}
