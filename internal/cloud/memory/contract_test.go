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
	var newest *memory.Account
	h := cloudtest.Harness{
		Zones: []string{"zone-a", "zone-b"},
		Nodes: []cloud.NodeID{"node-1", "node-2"},
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
	if cfg.Capabilities.Scope == "" || len(cfg.Capabilities.Parameters) > 0 {
		h.Parameters = []cloud.Parameter{{Name: "tier", Value: "gold"}, {Name: "type", Value: "fast"}}
	}
	return h
}

func TestContract(t *testing.T) {
	bare := memory.Full()
	bare.Attach, bare.Expand, bare.Snapshots, bare.Clones, bare.Capacity = false, false, false, false, false
	bare.Scope, bare.Parameters, bare.VolumesPerNode = cloud.ScopeNode, nil, 0
	fine := memory.Full()
	fine.SizeStep, fine.SmallestVolume, fine.Scope = 1, cloud.MiB, cloud.ScopeRegion
	shapes := map[string]memory.Config{
		"everything":                    {},
		"nothing but volumes":           {Capabilities: bare},
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
