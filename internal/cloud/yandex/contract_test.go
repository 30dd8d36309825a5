package yandex_test

import (
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// open returns a controller's view of the folder.
func open(t *testing.T, folder *emulator.Cloud, edit ...func(*yandex.Config)) *yandex.Cloud {
	t.Helper()
	cfg := yandex.Config{
		Config: block.Config{
			Token:    func() (string, error) { return folder.Token, nil },
			Endpoint: "http://127.0.0.1:1", // no socket
			Region:   emulator.DefaultZone, ClusterID: "one",
			Tick: 4 * time.Millisecond,
			Busy: wait.Backoff{First: 2 * time.Millisecond, Max: 20 * time.Millisecond},
		},
		Dial: folder.Dial, Folder: folder.Folder,
	}
	for _, e := range edit {
		e(&cfg)
	}
	c, err := yandex.New(t.Context(), cfg)
	must(t, err)
	cloudtest.CloseAfter(t, c.Close)
	return c
}

// inCluster makes the controller one of another cluster.
func inCluster(id string) func(*yandex.Config) {
	return func(cfg *yandex.Config) { cfg.ClusterID = id }
}

// The machines of every folder.
const (
	machine1 = "fhm0machine00000001a"
	machine2 = "fhm0machine00000002a"
	node1    = cloud.NodeID(machine1)
	node2    = cloud.NodeID(machine2)
)

// start returns a folder with two machines, and no rights but those that the driver asks for.
func start(t *testing.T, opts emulator.Options) *emulator.Cloud {
	t.Helper()
	opts.InMemory = true
	if opts.Rules.Rights == nil {
		opts.Rules.Rights = emulator.DriverRights()
	}
	folder := emulator.Start(t, opts)
	for _, id := range []string{machine1, machine2} {
		folder.AddInstance(emulator.Instance{ID: id})
	}
	return folder
}

func harness(opts emulator.Options) cloudtest.Harness {
	var newest *emulator.Cloud
	opts.Rules.BootDisksElsewhere = true              // what the machines boot from is not the suite's
	opts.Decide = func(emulator.Call) faults.Effect { // requests take time, so that contexts end within them
		return faults.Effect{Delay: clock.Fixed(time.Millisecond), DelayAnswer: clock.Fixed(time.Millisecond)}
	}
	fresh := func(t *testing.T) *emulator.Cloud {
		newest = start(t, opts)
		return newest
	}
	return cloudtest.Harness{
		Zones:      []string{emulator.DefaultZone, "ru-central1-b"},
		Nodes:      []cloud.NodeID{node1, node2},
		Slots:      7,
		Parameters: []cloud.Parameter{{Name: "blockSize", Value: "8Ki"}, {Name: "type", Value: "network-ssd"}},
		Slow:       opts.Durations != emulator.Durations{},
		Simulated:  true,
		New:        func(t *testing.T) cloud.Cloud { return open(t, fresh(t)) },
		Pair: func(t *testing.T) (a, b cloud.Cloud) {
			folder := fresh(t)
			return open(t, folder), open(t, folder, inCluster("two"))
		},
		Denied: func(t *testing.T) cloud.Cloud {
			return open(t, fresh(t), func(cfg *yandex.Config) {
				cfg.Token = func() (string, error) { return "another", nil }
			})
		},
		Sick: func(_ *testing.T, id cloud.VolumeID) cloud.Health {
			newest.ChangeDisk(string(id), func(d *emulator.Disk) { d.Status = "ERROR" })
			return cloud.Health{
				Kind: cloud.Inaccessible, Reason: "DiskError",
				Message: "disk " + string(id) + " is in the state ERROR and cannot operate; ask the cloud's support, or restore a snapshot",
			}
		},
		Requests: func() int { return newest.Stats().Reads + newest.Stats().Writes },
	}
}

// C1: the suite that every backend passes: one name is one volume.
func TestContract(t *testing.T) {
	t.Parallel()
	slow := emulator.Each(clock.Span{Least: 2 * time.Millisecond, Spread: 2 * time.Millisecond})
	for name, opts := range map[string]emulator.Options{
		"operations are over at once":      {},
		"operations arrive done":           {Rules: emulator.Rules{ArrivesDone: true}},
		"operations take time":             {Durations: slow},
		"changes show before their end":    {Durations: slow, Rules: emulator.Rules{ChangeOnAccept: true}},
		"names repeat":                     {Rules: emulator.Rules{NamesRepeat: true}},
		"keys are forgotten":               {Durations: slow, Rules: emulator.Rules{KeysForgottenAfter: clock.Fixed(20 * time.Millisecond)}},
		"new operations are not known yet": {Rules: emulator.Rules{FreshNotFound: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "operations take time" {
				t.Skip("make verify runs every variant")
			}
			t.Parallel()
			t.Run("bare", func(t *testing.T) { cloudtest.Run(t, harness(opts)) })
			if opts.Rules.ArrivesDone || opts.Rules.ChangeOnAccept || opts.Rules.FreshNotFound > 0 {
				return // what the cloud's rules change is below the stack
			}
			t.Run("in the stack", func(t *testing.T) { cloudtest.Run(t, harness(opts).InStack(stack)) })
		})
	}
}
