package main

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/machine"
)

// A5, A6: the limit is the number of slots, less other disks, less reserved slots, and never 0, which would
// mean that there is no limit.
func TestTheLimitIsWhatTheMachineHasPlacesFor(t *testing.T) {
	for name, tc := range map[string]struct{ places, others, reserved, want int64 }{
		"8 GiB with two local disks":       {8, 2, 0, 6},
		"16 GiB with two":                  {16, 2, 0, 14},
		"96 GiB with two":                  {64, 2, 0, 62},
		"1 GiB with 8":                     {8, 8, 0, 1},
		"1 GiB with more than it can have": {8, 9, 0, 1},
		"some left to others":              {16, 2, 4, 10},
		"all left to others":               {16, 2, 60, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := availableSlots(tc.places, tc.others, tc.reserved); got != tc.want {
				t.Errorf("availableSlots(%d, %d, %d) = %d, want %d", tc.places, tc.others, tc.reserved, got, tc.want)
			}
		})
	}
}

func TestWhoTheMachineIsComesFromWhereItIsKnown(t *testing.T) {
	noRoute := errors.New("no route")
	served := func(context.Context, string) (machine.Info, error) {
		return machine.Info{ID: "7", Zone: "us-ord", Places: 16}, nil
	}
	silent := func(ctx context.Context, _ string) (machine.Info, error) {
		<-ctx.Done()
		return machine.Info{}, noRoute
	}
	fallback := func() (machine.Info, error) { return machine.Info{ID: "8", Places: 8}, nil }
	noSource := func() (machine.Info, error) { return machine.Info{}, errors.New("no serial number") }
	tests := map[string]struct {
		cfg   config
		disks disks
		want  driver.NodeInfo
		fails bool
	}{
		"the service":                         {config{}, disks{machine: served, fallback: noSource}, driver.NodeInfo{ID: "7", Zone: "us-ord", MaxVolumes: 14}, false},
		"the service and the flags":           {config{zone: "us-east"}, disks{machine: served}, driver.NodeInfo{ID: "7", Zone: "us-east", MaxVolumes: 14}, false},
		"the flags alone":                     {named("9", "us-east", 5), disks{machine: silent}, driver.NodeInfo{ID: "9", Zone: "us-east", MaxVolumes: 5}, false},
		"the machine itself, where --zone is": {config{zone: "us-east"}, disks{machine: silent, fallback: fallback}, driver.NodeInfo{ID: "8", Zone: "us-east", MaxVolumes: 6}, false},
		"--node-id before the machine's own":  {named("9", "us-east", 0), disks{machine: silent, fallback: fallback}, driver.NodeInfo{ID: "9", Zone: "us-east", MaxVolumes: 6}, false},
		"no source, where no --zone is":       {config{}, disks{machine: silent, fallback: fallback}, driver.NodeInfo{}, true},
		"no source, on another cloud":         {config{zone: "us-east"}, disks{machine: silent, fallback: noSource}, driver.NodeInfo{}, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tc.cfg.disks = &tc.disks
				got, _, err := identify(t.Context(), tc.cfg, limit{foreign: func() (int64, error) { return 2, nil }}, zap.NewNop())
				if (err != nil) != tc.fails || !tc.fails && got != tc.want {
					t.Errorf("identify = %+v, %v, want %+v", got, err, tc.want)
				}
			})
		})
	}
}

func named(id, zone string, most int64) config {
	c := config{zone: zone}
	c.NodeID, c.MaxVolumes = id, most
	return c
}

// A5: what an attach says of the machine counts at once and after a restart, and only on that machine.
func TestTheLimitRisesWhenAnAttachSaysSo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "many-disks")
	on := func(id string) limit {
		return limit{
			machine: machine.Info{ID: id, Places: 8, ManyPlaces: 62}, manyDisks: file,
			foreign: func() (int64, error) { return 1, nil },
		}
	}
	want := func(when string, l limit, want int64) {
		t.Helper()
		if got, err := l.volumes(); got != want || err != nil {
			t.Errorf("%s: volumes = %d, %v, want %d", when, got, err, want)
		}
	}
	want("at first", on("a"), 7)
	for range 2 {
		if err := on("a").learn(); err != nil {
			t.Fatal(err)
		}
		want("after an attach", on("a"), 61)
	}
	want("on a machine that was made from a copy of the disk", on("b"), 7)
	if err := on("b").learn(); err != nil {
		t.Fatal(err)
	}
	want("after an attach there", on("b"), 61)
	given := on("b")
	given.max = 5
	want("with --max-volumes", given, 5)
	given.foreign, given.max = func() (int64, error) { return 0, errors.New("no /sys") }, 0
	if _, err := given.volumes(); err == nil {
		t.Error("volumes = no error where the other disks cannot be counted")
	}
}
