package memory_test

import (
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// harness tests accounts of this shape. The decorators' own tests run it inside the stack.
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
		Slow:  cfg.OperationTime > 0,
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
		Sick: func(t *testing.T, id cloud.VolumeID) cloud.Health {
			health := cloud.Health{Kind: cloud.DataLoss, Reason: "ImageGone", Message: "the image is gone; restore a snapshot"}
			if err := newest.SetHealth(id, health); err != nil {
				t.Error(err)
			}
			return health
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
	return h
}

// C1, C12: the suite that every backend passes: one name is one volume, and a delete acts on an id alone.
func TestContract(t *testing.T) {
	bare := memory.Full()
	bare.Attach, bare.Expand, bare.Snapshots, bare.Clones, bare.Capacity = false, false, false, false, false
	bare.Health = false
	bare.Scope, bare.Parameters = cloud.ScopeNode, nil
	fine := memory.Full()
	fine.SizeStep, fine.SmallestVolume, fine.Scope = 1, cloud.MiB, cloud.ScopeRegion
	bound := memory.Full()
	bound.SnapshotZones = true
	shapes := map[string]memory.Config{
		"everything":                    {},
		"nothing but volumes":           {Capabilities: bare},
		"snapshots bound to their zone": {Capabilities: bound},
		"other places":                  {Places: []string{"island"}},
		"sizes to the byte":             {Capabilities: fine},
		"ten entries on a page":         {PageSize: 10},
		"expansion only while detached": {OfflineExpand: true},
		"names per cluster":             {NamesPerCluster: true},
		"changes take time":             {OperationTime: 3 * time.Millisecond},
		"nodes confirm expansions":      {NodeMustConfirm: true},
	}
	for name, cfg := range shapes {
		t.Run(name, func(t *testing.T) { cloudtest.Run(t, harness(cfg)) })
	}
}
