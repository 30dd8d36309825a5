package cloudtest_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// account is an account whose controllers are all the same.
type account struct {
	*memory.Account

	backend func(c cloud.Cloud) cloud.Cloud
}

func (a account) Open(*testing.T, cloudtest.Around) cloud.Cloud { return a.backend(a.Cluster("one")) }

func (account) Left(t *testing.T, c cloud.Cloud) (volumes, snapshots int) {
	t.Helper()
	list, err := c.ListVolumes(t.Context(), cloud.Page{})
	cloudtest.Must(t, err)
	return len(list.Volumes), 0
}

func (account) At(cloud.VolumeID) cloud.NodeID { return "" }

func (account) Arm(cloudtest.Change, cloudtest.Fault) (struck func() bool) { return nil }

func (account) Add(string) (cloud.VolumeID, error) { return "", nil }

func (account) Requests() (reads, writes int) { return 0, 0 }

func (account) StaleLists() {}

func (account) Remove(cloud.NodeID, time.Duration) {}

// Only calls that Capabilities has are made: the contract suite requires the refusals.
func TestACloudThatHasOnlyVolumesIsRaced(t *testing.T) {
	races(func(c cloud.Cloud) cloud.Cloud { return c }).Race(t)
}

// races returns the Crashes of a cloud that has only volumes.
func races(backend func(c cloud.Cloud) cloud.Cloud) cloudtest.Crashes {
	only := memory.Full()
	only.Attach, only.Expand, only.Snapshots, only.Clones = false, false, false, false
	return cloudtest.Crashes{
		Fresh: func(*testing.T) cloudtest.Account {
			return account{memory.NewAccount(memory.Config{Capabilities: only, Zones: []string{"zone-a", "zone-b"}}), backend}
		},
		Stack: func(c cloud.Cloud) cloud.Cloud { return middleware.Stack(c, wait.Backoff{}) },
		Request: func(name string) cloud.CreateVolumeRequest {
			return cloud.CreateVolumeRequest{Name: name, Size: cloud.GiB, Zones: []string{"zone-a"}}
		},
		Node: "node-1", Elsewhere: []string{"zone-b"},
	}
}

// raceEnv makes a child process race the backend of TestMutantRace.
const raceEnv = "CLOUDTEST_RACE"

// The race finds two controllers that answer one create with different volumes, even if the account ends with the right number of
// volumes.
func TestTheRaceFindsALoserThatRemovesTheWinnersVolume(t *testing.T) {
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMutantRace$", "-test.timeout=60s")
	child.Env = append(os.Environ(), raceEnv+"=1")
	if out, err := child.CombinedOutput(); err == nil || !strings.Contains(string(out), `"made" were answered with the volumes`) {
		t.Errorf("the race ended with %v and\n%s", err, out)
	}
}

// TestMutantRace is the child process.
func TestMutantRace(t *testing.T) {
	if os.Getenv(raceEnv) == "" {
		return // there is nothing to test in the parent
	}
	races(func(c cloud.Cloud) cloud.Cloud {
		return mutant{Cloud: c, createVolume: func(good cloud.Cloud, ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
			vol, err := good.CreateVolume(ctx, req)
			if winner, findErr := good.FindVolume(ctx, req.Name); fault.Of(err) == fault.Conflict && findErr == nil {
				if err = good.DeleteVolume(ctx, winner.ID); err == nil {
					return good.CreateVolume(ctx, req)
				}
			}
			return vol, err
		}}
	}).Race(t)
}
