package world

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

// Scene is a cloud to play on.
type Scene struct {
	// Open makes its world; Served makes one that real programs reach.
	Open, Served Maker
	// Snapshots: the cloud has them.
	Snapshots bool
	// Claims: an attach shows in the volume's record as soon as the cloud has taken it on, so that nobody
	// takes the volume for free.
	Claims bool
}

// Scenes are the clouds by their names.
var Scenes = map[string]Scene{
	"digitalocean":     emulated(digitalOceanTraits, Scene{Snapshots: true}),
	"linode":           emulated(linodeTraits, Scene{Claims: true}),
	"linode-snapshots": emulated(linodeSnapshotTraits, Scene{Claims: true, Snapshots: true}),
	"yandex":           emulated(yandexTraits, Scene{Snapshots: true}),
}

// emulated completes a scene by both worlds of an emulated account.
func emulated(t traits, s Scene) Scene {
	s.Open, s.Served = makerOf(t, 0), makerOf(t, BinarySpeed)
	return s
}

// SceneOf returns the scene of a name. The error says which names are known, and of the local cloud why it is none of them.
func SceneOf(name string) (Scene, error) {
	if s, ok := Scenes[name]; ok {
		return s, nil
	}
	known := strings.Join(slices.Sorted(maps.Keys(Scenes)), ", ")
	if name == "local" {
		return Scene{}, fmt.Errorf("cloud %q is not played: its volumes are files of this machine, so there is no API that could fail; known are %s", name, known)
	}
	return Scene{}, fmt.Errorf("cloud %q: known are %s", name, known)
}

// Maker makes the world of a run, in which the injector decides what goes wrong. Log takes a line for the run's history, and changed is
// called whenever the account may have changed.
type Maker func(in *trouble.Injector, log func(format string, args ...any), changed func()) (*World, error)

// makerOf makes the maker of a world with these traits. A speed of 0 is for simulated time.
func makerOf(t traits, speed float64) Maker {
	return func(in *trouble.Injector, log func(format string, args ...any), changed func()) (*World, error) {
		is, _ := profile.Of(t.name)
		names, err := driver.NewNames(t.name, is.Scope, "", nil)
		if err != nil {
			return nil, err
		}
		w := &World{in: in, log: log, changed: changed, names: names, traits: t, real: speed > 0, holds: map[cloud.VolumeID]func(){}}
		w.account, err = t.start(accounts.Options{Machines: plan.Machines, Seed: in.Seed, Speed: speed, Takes: lasting, Decide: w.decide})
		return w, err
	}
}

// BinarySpeed is how much faster than real the time of the cluster and of the cloud passes around the
// real program, whose own pauses stay as they are.
const BinarySpeed = 20
