package cloudtest

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// Waited lets a detach wait behind another change of its machine, while another controller moves the volume to a second
// machine: the detach must not take it off that one (failure A1).
func (cr Crashes) Waited(t *testing.T) {
	if !cr.Fresh(t).Open(t, nil).Capabilities().Attach {
		return // the contract suite demands the refusal
	}
	synctest.Test(t, func(t *testing.T) {
		account := cr.Fresh(t)
		other := account.Open(t, nil)
		moved := cr.attached(t, other)
		behind, err := other.CreateVolume(t.Context(), cr.Request("behind"))
		Must(t, err)
		gate := &gate{held: make(chan struct{}), open: make(chan struct{})}
		waiting := account.Open(t, gate.request)
		for _, id := range []cloud.VolumeID{moved, behind.ID} { // what a backend reads once
			_, err := waiting.GetVolume(t.Context(), id)
			Must(t, err)
		}
		gate.closes.Store(true)
		var both sync.WaitGroup
		both.Go(func() {
			if err := cr.attachTo(t, waiting, behind.ID, cr.Node); err != nil {
				t.Error(err)
			}
		})
		<-gate.held
		both.Go(func() {
			if err := waiting.Detach(t.Context(), moved, cr.Node); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // it has read what it reads, and waits
		Must(t, Repeat(func() error { return other.Detach(t.Context(), moved, cr.Node) }))
		Must(t, cr.attachTo(t, other, moved, cr.Second))
		close(gate.open)
		both.Wait()
		if at := account.At(moved); at != cr.Second {
			t.Errorf("the volume is on node %q, want %q: a detach that had waited took it off a machine that got it meanwhile", at, cr.Second)
		}
	})
}

func (cr Crashes) attachTo(t *testing.T, c cloud.Cloud, id cloud.VolumeID, node cloud.NodeID) error {
	t.Helper()
	return Repeat(func() error {
		_, err := c.Attach(t.Context(), id, node)
		return err
	})
}

// gate holds the first request after it closes until it opens again.
type gate struct {
	closes     atomic.Bool
	held, open chan struct{}
}

func (g *gate) request(send func() error) error {
	if g.closes.CompareAndSwap(true, false) {
		close(g.held)
		<-g.open
	}
	return send()
}
