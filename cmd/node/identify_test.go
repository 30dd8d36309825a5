package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/machine"
)

func TestWhoTheMachineIsComesFromWhereItIsKnown(t *testing.T) {
	noRoute := errors.New("no route")
	served := func(context.Context, string) (machine.Info, error) {
		return machine.Info{ID: "7", Zone: "us-ord", MaxDisks: 16}, nil
	}
	silent := func(ctx context.Context, _ string) (machine.Info, error) {
		<-ctx.Done()
		return machine.Info{}, noRoute
	}
	fallback := func() (machine.Info, error) { return machine.Info{ID: "8", MaxDisks: 8}, nil }
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
				got, _, err := identify(t.Context(), tc.cfg, func() (int64, error) { return 2, nil }, zap.NewNop())
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
