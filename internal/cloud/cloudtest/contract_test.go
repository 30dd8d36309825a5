package cloudtest_test

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

// harness tests accounts of the in-memory cloud of this shape.
func harness(cfg memory.Config) cloudtest.Harness {
	cfg.Slots, cfg.Space = 8, 90*cloud.GiB // less than the largest volume
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
			cloudtest.Must(t, newest.SetUnfit(id, "it is written to and cannot be stopped"))
			return func() { cloudtest.Must(t, newest.SetUnfit(id, "")) }
		},
		Sick: func(t *testing.T, id cloud.VolumeID) cloud.Health {
			health := cloud.Health{Kind: cloud.DataLoss, Reason: "ImageGone", Message: "the image is gone; restore a snapshot"}
			cloudtest.Must(t, newest.SetHealth(id, health))
			return health
		},
		InUse: func(t *testing.T, id cloud.VolumeID) func() {
			cloudtest.Must(t, newest.SetInUse(id, true))
			return func() { cloudtest.Must(t, newest.SetInUse(id, false)) }
		},
	}
	if len(cfg.Places) > 0 {
		h.Elsewhere = cloudtest.Elsewhere{Place: cfg.Places[0], Volume: cloud.VolumeID(cfg.Places[0] + "/vol-1"), Snapshot: cloud.SnapshotID(cfg.Places[0] + "/snap-1")}
	}
	if cfg.Capabilities.Scope == "" || len(cfg.Capabilities.Parameters) > 0 {
		h.Parameters = []cloud.Parameter{{Name: "tier", Value: "gold"}, {Name: "type", Value: "fast"}}
	}
	return h
}

// C1, C12: the suite that every backend passes: one name is one volume, and a delete acts on an id alone. The in-memory cloud passes
// it bare and inside the stack.
func TestContract(t *testing.T) {
	little := memory.Full()
	little.Attach, little.Expand, little.Snapshots, little.Clones, little.Capacity = false, false, false, false, false
	little.Health, little.Modify = false, false
	little.Scope, little.Parameters = cloud.ScopeNode, nil
	fine := memory.Full()
	fine.SizeStep, fine.SmallestVolume, fine.Scope = 1, cloud.MiB, cloud.ScopeRegion
	shapes := map[string]memory.Config{
		"everything":                    {},
		"nothing but volumes":           {Capabilities: little},
		"snapshots bound to their zone": {Capabilities: zoned()},
		"other places":                  {Places: []string{"island"}},
		"sizes to the byte":             {Capabilities: fine},
		"ten entries on a page":         {PageSize: 10},
		"expansion only while detached": {OfflineExpand: true},
		"names per cluster":             {NamesPerCluster: true},
		"changes take time":             {OperationTime: 3 * time.Millisecond},
		"nodes confirm expansions":      {NodeMustConfirm: true},
		// A bare backend can show the lag of its cloud. The decorators have to tolerate it.
		"reads lag a tick behind writes":                  {ReadLag: 10 * time.Millisecond},
		"reads lag a tick behind writes, which take time": {ReadLag: 10 * time.Millisecond, OperationTime: 3 * time.Millisecond},
	}
	for name, cfg := range shapes {
		if cfg.ReadLag == 0 {
			t.Run(name, func(t *testing.T) { cloudtest.Run(t, harness(cfg)) })
		}
		t.Run(name+" in the stack", func(t *testing.T) {
			cloudtest.Run(t, harness(cfg).InStack(func(c cloud.Cloud) cloud.Cloud { return middleware.Stack(c, wait.Backoff{}) }))
		})
	}
}
