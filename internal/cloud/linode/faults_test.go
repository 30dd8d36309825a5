package linode_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/linode"
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
	return middleware.Stack(c, middleware.Options{Backoff: middleware.Backoff{Attempts: 4, First: time.Millisecond, Most: 5 * time.Millisecond}})
}

func request(name string) cloud.CreateVolumeRequest {
	return cloud.CreateVolumeRequest{Name: name, Size: 10 * cloud.GiB, Zones: []string{emulator.DefaultRegion}}
}

func volume(t *testing.T, c cloud.Cloud, name string) cloud.Volume {
	t.Helper()
	vol, err := c.CreateVolume(t.Context(), request(name))
	must(t, err)
	return vol
}

var must, want, until = cloudtest.Must, cloudtest.Want, cloudtest.Until

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

// C1: whichever side of a create gets lost, the repeat finds the one volume, and a first answer that never
// came equals the second.
func TestCreateWithALostAnswerMakesOneVolume(t *testing.T) {
	for _, lost := range []faults.Lost{faults.LostBefore, faults.LostAfter} {
		t.Run(string(lost), func(t *testing.T) {
			account := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(10 * time.Millisecond))})
			bare := open(t, account)
			post(account, volumesRoute, faults.Effect{Lost: lost})
			_, err := bare.CreateVolume(t.Context(), request("a"))
			want(t, err, fault.Uncertain)
			first, err := stack(bare).CreateVolume(t.Context(), request("a"))
			must(t, err)
			second, err := stack(bare).CreateVolume(t.Context(), request("a"))
			must(t, err)
			if fmt.Sprintf("%+v", first) != fmt.Sprintf("%+v", second) || len(account.Volumes()) != 1 {
				t.Errorf("the repeats answer\n%+v\n%+v, and there are %d volumes", first, second, len(account.Volumes()))
			}
		})
	}
}

func TestLostAnswersOfAttachAndDetachAreSettledByTheRepeat(t *testing.T) {
	for _, lost := range []faults.Lost{faults.LostBefore, faults.LostAfter} {
		t.Run(string(lost), func(t *testing.T) {
			account := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(20 * time.Millisecond))})
			c := open(t, account)
			vol := volume(t, c, "a")
			post(account, attachRoute, faults.Effect{Lost: lost})
			_, err := c.Attach(t.Context(), vol.ID, node1)
			want(t, err, fault.Uncertain)
			_, err = c.Attach(t.Context(), vol.ID, node1)
			must(t, err)
			at(t, account, vol.ID, linode1)
			post(account, detachRoute, faults.Effect{Lost: lost})
			want(t, c.Detach(t.Context(), vol.ID, node1), fault.Uncertain)
			must(t, c.Detach(t.Context(), vol.ID, node1))
			at(t, account, vol.ID, 0)
			post(account, resizeRoute, faults.Effect{Lost: lost})
			_, err = c.ExpandVolume(t.Context(), vol.ID, 20*cloud.GiB)
			want(t, err, fault.Uncertain)
			exp, err := c.ExpandVolume(t.Context(), vol.ID, 20*cloud.GiB)
			if err != nil || exp.Size != 20*cloud.GiB {
				t.Errorf("ExpandVolume again = %+v, %v", exp, err)
			}
			account.Arm(emulator.Fault{Method: "DELETE", Times: 1, Effect: faults.Effect{Lost: lost}})
			want(t, c.DeleteVolume(t.Context(), vol.ID), fault.Uncertain)
			must(t, c.DeleteVolume(t.Context(), vol.ID))
			if left := account.Volumes(); len(left) > 0 {
				t.Errorf("left are %+v", left)
			}
		})
	}
}

// The cloud gives changes up without a word: the call says what to do, and the next one sends it anew. A volume
// that the cloud could not make is removed, because it was never reported.
func TestAChangeThatTheCloudGivesUpIsUnavailableAndRepeatable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(50 * time.Millisecond))})
		c := open(t, account)
		vol := volume(t, c, "a")
		errored := faults.Effect{Errored: true}
		post(account, attachRoute, errored)
		_, err := c.Attach(t.Context(), vol.ID, node1)
		want(t, err, fault.Unavailable, string(vol.ID), "Linode 101", "sent again")
		_, err = c.Attach(t.Context(), vol.ID, node1)
		must(t, err)
		post(account, detachRoute, errored)
		want(t, c.Detach(t.Context(), vol.ID, node1), fault.Unavailable, "sent again")
		at(t, account, vol.ID, linode1)
		must(t, c.Detach(t.Context(), vol.ID, node1))
		post(account, resizeRoute, errored)
		_, err = c.ExpandVolume(t.Context(), vol.ID, 20*cloud.GiB)
		want(t, err, fault.Unavailable, "sent again")
		_, err = c.ExpandVolume(t.Context(), vol.ID, 20*cloud.GiB)
		must(t, err)
		must(t, c.DeleteVolume(t.Context(), vol.ID))
		post(account, volumesRoute, errored)
		_, err = c.CreateVolume(t.Context(), request("b"))
		want(t, err, fault.Unavailable, "contact_support")
		if left := account.Volumes(); len(left) > 0 {
			t.Errorf("left are %+v", left)
		}
	})
}

const eventsRoute = "/{apiVersion}/account/events"

// The happy path is one write per call.
func TestOneWritePerCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(20 * time.Millisecond))})
		c := stack(open(t, account))
		vol := volume(t, c, "ab")
		_, err := c.Attach(t.Context(), vol.ID, node1)
		must(t, err)
		_, err = c.ExpandVolume(t.Context(), vol.ID, 20*cloud.GiB)
		must(t, err)
		must(t, c.Detach(t.Context(), vol.ID, node1))
		must(t, c.DeleteVolume(t.Context(), vol.ID))
		if stats := account.Stats(); stats.Writes != 5 {
			t.Errorf("%d writes for 5 calls: %v", stats.Writes, stats.Routes)
		}
	})
}

// A caller that goes is answered at once, and the write that was sent goes on.
func TestACallerThatGoesDoesNotCutTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		c := open(t, account)
		post(account, volumesRoute, faults.Effect{DelayAnswer: clock.Fixed(100 * time.Millisecond)})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := c.CreateVolume(ctx, request("a"))
		if took := time.Since(began); took > 80*time.Millisecond {
			t.Errorf("the call took %s after its context had ended", took)
		}
		want(t, err, fault.Uncertain)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v does not match the context's error", err)
		}
		vol, err := stack(c).CreateVolume(t.Context(), request("a"))
		if err != nil || len(account.Volumes()) != 1 {
			t.Errorf("the repeat = %+v, %v, and there are %d volumes", vol, err, len(account.Volumes()))
		}
	})
}
