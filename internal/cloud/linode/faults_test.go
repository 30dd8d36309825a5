package linode_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// The routes that faults are armed on.
const (
	volumesRoute = "/{apiVersion}/volumes"
	volumeRoute  = volumesRoute + "/{volumeId}"
	attachRoute  = volumeRoute + "/attach"
	detachRoute  = volumeRoute + "/detach"
	resizeRoute  = volumeRoute + "/resize"
)

// stack is the backend as the program runs it.
func stack(c cloud.Cloud) cloud.Cloud {
	return middleware.Stack(c, wait.Backoff{Tries: 4, First: time.Millisecond, Max: 5 * time.Millisecond})
}

func request(name string) cloud.CreateVolumeRequest {
	return cloud.CreateVolumeRequest{Name: name, Size: 10 * cloud.GiB, Zones: []string{emulator.DefaultRegion}}
}

func volume(t *testing.T, c cloud.Cloud, name string) cloud.Volume {
	t.Helper()
	return create(t, c, request(name))
}

var (
	must, want, until = cloudtest.Must, cloudtest.Want, cloudtest.Until
	create, attach    = cloudtest.CreateVolume, cloudtest.AttachTo
)

func number(t *testing.T, id cloud.VolumeID) int {
	t.Helper()
	n, err := strconv.Atoi(string(id))
	must(t, err)
	return n
}

// at fails the test unless the account shows the volume at exactly this Linode (0: at none).
func at(t *testing.T, account *emulator.Cloud, id cloud.VolumeID, linode int) {
	t.Helper()
	vol, found := account.Volume(number(t, id))
	if !found || vol.Linode != linode {
		t.Errorf("volume %s is at Linode %d (exists: %v), want %d", id, vol.Linode, found, linode)
	}
}

// post arms a fault of the next request of a route.
func post(account *emulator.Cloud, route string, effect faults.Effect) {
	account.Arm(emulator.Fault{Method: "POST", Route: route, Times: 1, Effect: effect})
}

// A8: the cloud gives changes up without a word: the answer says what to do.
func TestAChangeThatTheCloudGivesUpIsUnavailableAndRepeatable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(50 * time.Millisecond))})
		c := open(t, account)
		vol := volume(t, c, "a")
		post(account, attachRoute, faults.Effect{Errored: true})
		_, err := c.Attach(t.Context(), vol.ID, node1)
		want(t, err, fault.Unavailable, string(vol.ID), "Linode 101", "sent again")
		post(account, volumesRoute, faults.Effect{Errored: true})
		_, err = c.CreateVolume(t.Context(), request("b"))
		want(t, err, fault.Unavailable, "contact_support")
	})
}

const eventsRoute = "/{apiVersion}/account/events"
