package main

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// The error names every flag that replaces the service: on Yandex Cloud, which has no fallback, --node-id and --zone are not enough.
func TestTheErrorNamesTheFlagsThatReplaceTheService(t *testing.T) {
	silent := func(context.Context, string) (machine.Info, error) { return machine.Info{}, errors.New("no route") }
	cfg := named("fhm4aq4hvq5g00000000", "ru-central1-a", 0)
	cfg.disks = &disks{machine: silent}
	_, _, err := identify(t.Context(), cfg, func() (int64, error) { return 1, nil }, zap.NewNop())
	if err == nil || !strings.Contains(err.Error(), "--max-volumes") {
		t.Errorf("identify with --node-id and --zone = %v, want it to name --max-volumes", err)
	}
}

// TestTheProgramEndsBeforeTheProbeEndsIt: without a metadata service the program fails and names the flags that replace it. If the
// kubelet's probe, which finds no socket meanwhile, came first, the program would end with success and without that error.
func TestTheProgramEndsBeforeTheProbeEndsIt(t *testing.T) {
	manifest, err := os.ReadFile("../../deploy/base/node/daemonset.yaml")
	must(t, err)
	probe := regexp.MustCompile(`livenessProbe:[^-]*initialDelaySeconds: (\d+)\s+periodSeconds: (\d+)\s+timeoutSeconds: \d+\s+failureThreshold: (\d+)`).FindSubmatch(manifest)
	if probe == nil {
		t.Fatal("found no probe")
	}
	seconds := func(i int) time.Duration {
		n, err := strconv.Atoi(string(probe[i]))
		must(t, err)
		return time.Duration(n) * time.Second
	}
	killed := seconds(1) + seconds(2)*(seconds(3)/time.Second-1)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		silent := func(ctx context.Context, _ string) (machine.Info, error) {
			<-ctx.Done()
			return machine.Info{}, ctx.Err()
		}
		_, _, err := identify(t.Context(), config{disks: &disks{machine: silent}}, func() (int64, error) { return 2, nil }, zap.NewNop())
		if took := time.Since(began); err == nil || took >= killed {
			t.Errorf("identify = %v after %s, and the probe stops the program after %s", err, took, killed)
		}
	})
}
