package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// The calls of a volume's life.
const (
	callCreate    = "create"
	callPublish   = "publish"
	callUnpublish = "unpublish"
	callDelete    = "delete"
)

// patience is how long the sidecars wait for a call.
const patience = 5 * time.Minute

// load is volumes that live from create to delete, some at a time, spread over the machines.
type load struct {
	volumes, atOnce int
	client          csi.ControllerClient
	// usable reports whether a machine has a volume's device.
	usable   func(volume, machine string) bool
	machines []string
	// lives counts those that are through.
	lives atomic.Int64

	mu     sync.Mutex
	calls  []call
	failed []error
}

// call is one RPC that succeeded.
type call struct {
	what, volume string
	ended        time.Time
}

// run lets all live and returns how long it took. A volume whose call fails is left as it is.
func (l *load) run(ctx context.Context) time.Duration {
	began := time.Now()
	numbers := make(chan int)
	var workers sync.WaitGroup
	for range l.atOnce {
		workers.Go(func() {
			for i := range numbers {
				if err := l.live(ctx, i); err != nil {
					l.mu.Lock()
					l.failed = append(l.failed, err)
					l.mu.Unlock()
				}
				l.lives.Add(1)
			}
		})
	}
	for i := range l.volumes {
		numbers <- i
	}
	close(numbers)
	workers.Wait()
	return time.Since(began)
}

func (l *load) live(ctx context.Context, number int) error {
	name, machine := fmt.Sprintf("pvc-%d", number), l.machines[number%len(l.machines)]
	id, err := createVolume(ctx, l.client, name)
	l.note(callCreate, name, err)
	if err != nil {
		return err
	}
	err = publishVolume(ctx, l.client, id, machine)
	if err == nil && !l.usable(id, machine) {
		err = fmt.Errorf("volume %s: its publish was answered before machine %s had its device", name, machine)
	}
	l.note(callPublish, name, err)
	if err != nil {
		return err
	}
	err = unpublishVolume(ctx, l.client, id, machine)
	l.note(callUnpublish, name, err)
	if err != nil {
		return err
	}
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err = l.client.DeleteVolume(patient, &csi.DeleteVolumeRequest{VolumeId: id})
	l.note(callDelete, name, err)
	return err
}

func (l *load) note(what, volume string, err error) {
	if err != nil {
		return
	}
	c := call{what: what, volume: volume, ended: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, c)
}

// plainVolume is what a pod with a filesystem asks for.
var plainVolume = &csi.VolumeCapability{
	AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
	AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
}

func createVolume(ctx context.Context, client csi.ControllerClient, name string) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := client.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: gib}, VolumeCapabilities: []*csi.VolumeCapability{plainVolume},
	})
	return answer.GetVolume().GetVolumeId(), err
}

func publishVolume(ctx context.Context, client csi.ControllerClient, id, machine string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := client.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: id, NodeId: machine, VolumeCapability: plainVolume,
	})
	return err
}

func unpublishVolume(ctx context.Context, client csi.ControllerClient, id, machine string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: machine})
	return err
}

// delay is how long a call took from the moment at which the cloud took on its last operation, and how
// long that operation took. What came before, such as the machine's turn, does not count.
type delay struct{ call, operation time.Duration }

// over is the call's time over the operation's own.
func (d delay) over() float64 { return float64(d.call) / float64(d.operation) }

// late is how long after the operation's end the call was answered, in milliseconds.
func (d delay) late() float64 { return ms(d.call - d.operation) }

// milliseconds is how long the operation took.
func (d delay) milliseconds() float64 { return ms(d.operation) }

// delays pairs the calls of a kind with their last operations.
func delays(calls []call, changes []change, what ...string) []delay {
	type key struct{ what, volume string }
	last := map[key]change{}
	for _, c := range changes {
		last[key{c.what, c.volume}] = c
	}
	var all []delay
	for _, c := range calls {
		if op, known := last[key{c.what, c.volume}]; known && slices.Contains(what, c.what) {
			all = append(all, delay{call: c.ended.Sub(op.accepted), operation: op.finished.Sub(op.accepted)})
		}
	}
	return all
}

// percentile returns the smallest value that so many percent of all are not above.
func percentile(all []delay, percent float64, of func(delay) float64) float64 {
	if len(all) == 0 {
		return math.Inf(1) // nothing was measured: no bar is met
	}
	values := make([]float64, 0, len(all))
	for _, d := range all {
		values = append(values, of(d))
	}
	slices.Sort(values)
	return values[int(math.Ceil(percent/100*float64(len(values))))-1]
}
