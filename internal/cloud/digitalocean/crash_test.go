package digitalocean_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
)

func origin(t *testing.T, c cloud.Cloud) cloud.VolumeID { return volume(t, c, "origin").ID }

func attached(t *testing.T, c cloud.Cloud) cloud.VolumeID {
	id := origin(t, c)
	_, err := c.Attach(t.Context(), id, node1)
	must(t, err)
	return id
}

// crashed is an account for whose controllers every temporary snapshot is old enough to be swept.
type crashed struct{ *emulator.Cloud }

func (a crashed) Open(t *testing.T, around cloudtest.Around) cloud.Cloud {
	return open(t, a.Cloud, func(cfg *digitalocean.Config) {
		cfg.OrphanAge = time.Nanosecond
		cfg.Transport = cloudtest.OverHTTP(cfg.Transport, around)
	})
}

func (a crashed) Left(t *testing.T, c cloud.Cloud) (volumes, snapshots int) {
	must(t, c.(*digitalocean.Cloud).Sweep(t.Context()))
	return len(a.Volumes()), len(a.Snapshots())
}

func (a crashed) At(id cloud.VolumeID) cloud.NodeID {
	if vol, _ := a.Volume(string(id)); vol.DropletID != 0 {
		return cloud.NodeID(strconv.Itoa(vol.DropletID))
	}
	return ""
}

func crashes(lasts clock.Span) cloudtest.Crashes {
	return cloudtest.Crashes{
		Fresh: func(t *testing.T) cloudtest.Account {
			return crashed{start(t, emulator.Options{Durations: emulator.Actions(lasts)})}
		},
		Stack: stack, Request: request, Node: node1, Second: node2, Elsewhere: []string{"nyc2", "ams3"},
	}
}

// C1, C2, A10: a controller is killed at each of its requests in turn, before and after the request's effect; a
// new one that is asked the same converges, and nothing is left or doubled.
func TestAControllerKilledAtAnyRequestIsContinuedByTheNext(t *testing.T) {
	crashes(clock.Fixed(2 * time.Millisecond)).Kill(t)
}

// A1: a detach that waited in a queue takes the volume off no machine that has got it meanwhile.
func TestADetachThatWaitedTakesNothingOffAnotherMachine(t *testing.T) {
	crashes(clock.Fixed(2 * time.Millisecond)).Waited(t)
}

// Two controllers on one account are asked the same at once: locks and queues of one process carry no
// correctness.
func TestTwoControllersAtOnceConverge(t *testing.T) {
	crashes(clock.Span{Least: time.Millisecond, Spread: 5 * time.Millisecond}).Race(t)
}
