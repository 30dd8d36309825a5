package mounter

import (
	"context"
	"fmt"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// jobs runs work that must not stop when the RPC that asked for it ends: a mkfs or fsck that is
// killed half-way is worse than one that nobody waits for. One job per device at a time; jobs of
// different devices know nothing of each other.
type jobs struct {
	mu      sync.Mutex
	running map[uint64]*job
}

// job is one piece of work under way.
type job struct {
	name string
	done chan struct{}
	err  error
}

// run does work for the device with this number and waits for it, but only as long as ctx lives:
// the work goes on after that, and until it has ended every other call for the device is
// fault.Busy. The work's context carries ctx's values and never ends. late is told the result
// when nobody waited for it.
func (j *jobs) run(ctx context.Context, dev uint64, name string, work func(context.Context) error, late func(error)) error {
	j.mu.Lock()
	if other := j.running[dev]; other != nil {
		j.mu.Unlock()
		return fmt.Errorf("%s is still running on the device: %w", other.name, fault.Busy)
	}
	if j.running == nil {
		j.running = make(map[uint64]*job)
	}
	own := &job{name: name, done: make(chan struct{})}
	j.running[dev] = own
	j.mu.Unlock()

	go func() {
		err := work(context.WithoutCancel(ctx))
		j.mu.Lock()
		own.err = err
		delete(j.running, dev)
		j.mu.Unlock()
		close(own.done)
		if ctx.Err() != nil {
			late(err)
		}
	}()
	select {
	case <-own.done:
		return own.err
	case <-ctx.Done():
		return fmt.Errorf("%s goes on without its caller: %w: %w", name, fault.Busy, ctx.Err())
	}
}

// busy names the job that runs on the device, if one does.
func (j *jobs) busy(dev uint64) (string, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if own := j.running[dev]; own != nil {
		return own.name, true
	}
	return "", false
}

// wait returns when no job is running, or when ctx ends.
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
