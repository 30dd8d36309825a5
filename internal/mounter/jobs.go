package mounter

import (
	"context"
	"fmt"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// jobs lets one call at a time change a device, and lets a step of it run on when the RPC that
// asked for it ends: a mkfs or fsck that is killed half-way is worse than one that nobody waits
// for. Jobs of different devices know nothing of each other.
type jobs struct {
	mu      sync.Mutex
	running map[uint64]*job
}

// job is the right to change one device.
type job struct {
	all  *jobs
	dev  uint64
	name string
	done chan struct{} // closed when the device is free again

	mu        sync.Mutex
	finished  bool // the step that runs has ended
	abandoned bool // nobody waits for it any more; it frees the device itself
}

// begin takes the device with this number; fault.Busy while another job has it.
func (j *jobs) begin(dev uint64, name string) (*job, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if other := j.running[dev]; other != nil {
		return nil, fmt.Errorf("%s is still running on the device: %w", other.name, fault.Busy)
	}
	if j.running == nil {
		j.running = make(map[uint64]*job)
	}
	own := &job{all: j, dev: dev, name: name, done: make(chan struct{})}
	j.running[dev] = own
	return own, nil
}

// end frees the device, unless a step goes on without its caller: then that step frees it.
func (o *job) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.abandoned {
		o.free()
	}
}

func (o *job) free() {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	delete(o.all.running, o.dev)
	close(o.done)
}

// do runs step and waits for it as long as ctx lives. After that step goes on by itself, with a
// context that does not end, and the device stays taken until it has ended; late is told how. step
// must use nothing that its caller closes.
func (o *job) do(ctx context.Context, step func(context.Context) error, late func(error)) error {
	result := make(chan error, 1)
	go func() {
		err := step(context.WithoutCancel(ctx))
		o.mu.Lock()
		defer o.mu.Unlock()
		o.finished = true
		result <- err
		if o.abandoned {
			late(err)
			o.free()
		}
	}()
	select {
	case err := <-result:
		return o.again(err)
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.finished {
		o.finished = false
		return <-result
	}
	o.abandoned = true
	return fmt.Errorf("%s goes on without its caller: %w: %w", o.name, fault.Busy, ctx.Err())
}

// again makes the job ready for its next step.
func (o *job) again(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finished = false
	return err
}

// busy names the job that has the device, if there is one.
func (j *jobs) busy(dev uint64) (string, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if own := j.running[dev]; own != nil {
		return own.name, true
	}
	return "", false
}

// wait returns when there is no job, or when ctx ends.
func (j *jobs) wait(ctx context.Context) error {
	for {
		j.mu.Lock()
		var next *job
		for _, next = range j.running {
			break
		}
		j.mu.Unlock()
		if next == nil {
			return nil
		}
		select {
		case <-next.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", next.name, ctx.Err())
		}
	}
}
