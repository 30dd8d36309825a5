package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// memoryClient is the account as one controller program reaches it.
type memoryClient struct {
	cloud.Cloud

	w       *memoryWorld
	life    context.Context
	program Program
}

// call is one call on its way.
type call struct {
	name, object string
	// writes: the call changes something, so its outcome may be uncertain.
	writes bool
	// chances are of the faults beside those that every call can have.
	chances []chance
	fault   Kind
	rng     *rand.Rand
}

var errCut = errors.New("connection cut")

// send is the way to the cloud: it ends with an error if the call has no effect.
func (c *memoryClient) send(ctx context.Context, k *call) error {
	usual := []chance{{Refused, .04}, {LostAnswer, .03}}
	if k.writes {
		usual = []chance{{Refused, .03}, {LostRequest, .05}, {LostAnswer, .06}, {Slow, .05}}
	}
	k.fault, k.rng = c.w.in.decide(k.name, k.object, append(k.chances, usual...))
	if k.fault != "" {
		c.w.log("cloud: %s %s: %s", k.name, k.object, k.fault)
	}
	if err := wait.Sleep(ctx, between(k.rng, 10*time.Millisecond, 80*time.Millisecond)); err != nil {
		return fmt.Errorf("%s: not sent: %w", k.name, err)
	}
	if c.w.in.crashes(c.program.Number, beforeEffect) {
		c.w.log("controller %d: killed before %s %s", c.program.Number, k.name, k.object)
		c.program.Kill()
		return c.life.Err()
	}
	switch k.fault {
	case Refused:
		return fmt.Errorf("%s: %w", k.name, fault.Unavailable)
	case Full:
		return fmt.Errorf("%s: %w", k.name, fault.Exhausted)
	case LostRequest:
		return fmt.Errorf("%s: %w: %w", k.name, fault.Uncertain, errCut)
	}
	return nil
}

// answer is the way back.
func (c *memoryClient) answer(ctx context.Context, k *call) error {
	if c.w.in.crashes(c.program.Number, afterEffect) {
		c.w.log("controller %d: killed after %s %s", c.program.Number, k.name, k.object)
		c.program.Kill()
	}
	lost := fault.Unavailable
	if k.writes {
		lost = fault.Uncertain
	}
	took := between(k.rng, 10*time.Millisecond, 80*time.Millisecond)
	if k.fault == Slow {
		took = slowness(k.rng)
	}
	if err := wait.Sleep(ctx, took); err != nil {
		if k.writes {
			return fmt.Errorf("%s: %w: %w", k.name, fault.Uncertain, err)
		}
		return fmt.Errorf("%s: %w", k.name, err)
	}
	if k.fault == LostAnswer || k.fault == HalfDone {
		return fmt.Errorf("%s: %w: %w", k.name, lost, errCut)
	}
	return nil
}

func slowness(rng *rand.Rand) time.Duration { return between(rng, 20*time.Second, 400*time.Second) }

// do is a call whose effect is one moment.
func do[T any](ctx context.Context, c *memoryClient, k *call, effect func(ctx context.Context) (T, error)) (T, error) {
	var none T
	ctx, cancel := joined(ctx, c.life)
	defer cancel()
	if err := c.send(ctx, k); err != nil {
		return none, err
	}
	c.w.mu.Lock()
	answer, err := effect(context.WithoutCancel(ctx))
	c.w.mu.Unlock()
	if k.writes {
		c.w.changed()
	}
	if err != nil {
		return none, err
	}
	if err := c.answer(ctx, k); err != nil {
		return none, err
	}
	return answer, nil
}

// joined is a context that ends with either of two.
func joined(ctx, life context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(life, cancel)
	return ctx, func() { stop(); cancel() }
}
