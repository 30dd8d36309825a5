package yandex_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// C1: more failed creates than one call tries keys are followed by an answer and not by the end of the call, and the
// next one goes on from there and comes to an end.
func TestAControllerThatFindsManyFailedCreatesGoesOnFromThem(t *testing.T) {
	for _, vanishes := range []bool{false, true} {
		t.Run(fmt.Sprintf("what failed vanishes: %v", vanishes), func(t *testing.T) {
			simulated(t, func(t *testing.T) {
				folder := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(5 * time.Millisecond)), Rules: emulator.Rules{FailedCreateVanishes: vanishes}})
				first := open(t, folder)
				folder.Arm(emulator.Fault{Route: createDisk, Effect: faults.Effect{Errored: true, ID: "RESOURCE_EXHAUSTED", Message: "the rack burns"}})
				for range 70 { // six hours of a provisioner that asks every five minutes
					_, err := first.CreateVolume(t.Context(), request("a"))
					want(t, err, fault.Exhausted, "the rack burns")
				}
				second := open(t, folder) // it knows nothing of what was tried
				_, err := second.CreateVolume(t.Context(), request("a"))
				want(t, err, fault.Exhausted, "the rack burns")
				left(t, folder, 0)
				folder.Disarm()
				volume(t, second, "a")
				left(t, folder, 1)
			})
		})
	}
}

// C1: where names repeat, a disk that a call may have been answered with is not removed and no other one is answered,
// whatever else turns out to have its name: only a person can tell which of them is in use.
func TestADiskThatMayHaveBeenHandedOutIsNeverRemovedOrReplaced(t *testing.T) {
	older := func(t *testing.T, folder *emulator.Cloud) string {
		id, err := folder.AddDisk(emulator.Disk{Name: "a", Labels: labels("a")})
		must(t, err)
		<-time.After(time.Second)
		return id
	}
	// told is a create whose list does not show the older one, so that it is answered.
	told := func(t *testing.T, folder *emulator.Cloud, c *yandex.Cloud) {
		stale := folder.Arm(emulator.Fault{Route: "DiskService/List", Effect: faults.Effect{StaleAge: clock.Fixed(30 * time.Second)}})
		volume(t, c, "a")
		if stale.Hits() == 0 {
			t.Error("no list was asked for")
		}
		folder.Disarm()
		<-time.After(time.Hour)
	}
	for name, begin := range map[string]func(t *testing.T, folder *emulator.Cloud, c *yandex.Cloud) (again *yandex.Cloud, older string){
		"answered, and asked for again": func(t *testing.T, folder *emulator.Cloud, c *yandex.Cloud) (*yandex.Cloud, string) {
			id := older(t, folder)
			told(t, folder, c)
			return c, id
		},
		"answered by another controller": func(t *testing.T, folder *emulator.Cloud, c *yandex.Cloud) (*yandex.Cloud, string) {
			id := older(t, folder)
			told(t, folder, c)
			return open(t, folder), id
		},
		"another controller is waiting for it": func(t *testing.T, folder *emulator.Cloud, c *yandex.Cloud) (*yandex.Cloud, string) {
			id := older(t, folder)
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			_, err := c.CreateVolume(ctx, request("a"))
			want(t, err, fault.Uncertain)
			return open(t, folder), id
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T) {
				folder := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(2 * time.Second)), Rules: emulator.Rules{NamesRepeat: true}})
				first := open(t, folder)
				time.Sleep(time.Minute)
				again, old := begin(t, folder, first)
				var made string
				for _, d := range folder.Disks() {
					if d.ID != old {
						made = d.ID
					}
				}
				folder.SetContent(made, "precious")
				for range 3 {
					_, err := stack(again).CreateVolume(t.Context(), request("a"))
					want(t, err, fault.Uncertain, old, made, "delete the one")
				}
				left(t, folder, 2)
				must(t, again.DeleteVolume(t.Context(), cloud.VolumeID(old))) // somebody has looked
				vol, err := stack(again).CreateVolume(t.Context(), request("a"))
				if err != nil || string(vol.ID) != made {
					t.Errorf("CreateVolume = %s, %v, want %s", vol.ID, err, made)
				}
				if d, there := folder.Disk(made); !there || d.Content != "precious" {
					t.Errorf("the disk that was made is %+v (there: %v)", d, there)
				}
			})
		})
	}
}
