package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/trouble"
)

// scene is a cloud to play on.
type scene struct {
	// open makes its world; served makes one that real programs reach.
	open, served maker
	// snapshots: the cloud has them.
	snapshots bool
	// claims: an attach shows in the volume's record as soon as the cloud has taken it on, so that nobody
	// takes the volume for free.
	claims bool
}

// scenes are the clouds by their names.
var scenes = map[string]scene{
	"digitalocean":     emulated(digitalOceanTraits, scene{snapshots: true}),
	"linode":           emulated(linodeTraits, scene{claims: true}),
	"linode-snapshots": emulated(linodeSnapshotTraits, scene{claims: true, snapshots: true}),
	"yandex":           emulated(yandexTraits, scene{snapshots: true}),
}

// emulated completes a scene by both worlds of an emulated account.
func emulated(t traits, s scene) scene {
	s.open, s.served = rest(t, 0), rest(t, binarySpeed)
	return s
}

func sceneOf(name string) (scene, error) {
	if s, ok := scenes[name]; ok {
		return s, nil
	}
	known := strings.Join(slices.Sorted(maps.Keys(scenes)), ", ")
	if name == "local" {
		return scene{}, fmt.Errorf("cloud %q is not played: its volumes are files of this machine, so there is no API that could fail; known are %s", name, known)
	}
	return scene{}, fmt.Errorf("cloud %q: known are %s", name, known)
}

// maker makes the world of a run.
type maker func(in *trouble.Injector, log func(format string, args ...any), changed func()) (*restWorld, error)

// rest makes the maker of a world. A speed of 0 is for simulated time.
func rest(t traits, speed float64) maker {
	return func(in *trouble.Injector, log func(format string, args ...any), changed func()) (*restWorld, error) {
		is, _ := profile.Of(t.name)
		names, err := driver.NewNames(t.name, is.Scope, "", nil)
		if err != nil {
			return nil, err
		}
		w := &restWorld{in: in, log: log, changed: changed, names: names, traits: t, real: speed > 0, holds: map[cloud.VolumeID]func(){}}
		w.account, err = t.start(accounts.Options{Machines: plan.Machines, Seed: in.Seed, Speed: speed, Takes: lasting, Decide: w.decide})
		return w, err
	}
}

// binarySpeed is how much faster than real the time of the cluster and of the cloud passes around the
// real program, whose own pauses stay as they are.
const binarySpeed = 20
