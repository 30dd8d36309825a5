package cloudtest_test

import (
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
)

// account is one whose controllers are all alike.
type account struct{ *memory.Account }

func (a account) Open(*testing.T, cloudtest.Around) cloud.Cloud { return a.Cluster("one") }

func (account) Left(t *testing.T, c cloud.Cloud) (volumes, snapshots int) {
	t.Helper()
	list, err := c.ListVolumes(t.Context(), cloud.Page{})
	cloudtest.Must(t, err)
	return len(list.Volumes), 0
}

func (account) At(cloud.VolumeID) cloud.NodeID { return "" }

func (account) Arm(cloudtest.Change, cloudtest.Fault) (struck func() bool) { return nil }

func (account) Add(string) (cloud.VolumeID, error) { return "", nil }

// A cloud is asked only for what its Capabilities have: the contract suite demands the refusals.
func TestACloudThatHasOnlyVolumesIsRaced(t *testing.T) {
	only := memory.Full()
	only.Attach, only.Expand, only.Snapshots, only.Clones = false, false, false, false
	cloudtest.Crashes{
		Fresh: func(*testing.T) cloudtest.Account {
			return account{memory.NewAccount(memory.Config{Capabilities: only, Zones: []string{"zone-a", "zone-b"}})}
		},
		Stack: func(c cloud.Cloud) cloud.Cloud { return middleware.Stack(c, middleware.Options{}) },
		Request: func(name string) cloud.CreateVolumeRequest {
			return cloud.CreateVolumeRequest{Name: name, Size: cloud.GiB, Zones: []string{"zone-a"}}
		},
		Node: "node-1", Elsewhere: []string{"zone-b"},
	}.Race(t)
}
