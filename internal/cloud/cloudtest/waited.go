package cloudtest

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// Waited makes a detach wait for another change of its node, while another controller attaches the volume to a second node: the
// detach must not detach it from that node (failure A1).
func (cr Crashes) Waited(t *testing.T) {
	if !cr.Fresh(t).Open(t, nil).Capabilities().Attach {
		return // the contract suite demands the refusal
	}
	synctest.Test(t, func(t *testing.T) {
		account := cr.Fresh(t)
		other := account.Open(t, nil)
		moved := cr.attached(t, other)
		behind := CreateVolume(t, other, cr.Request("behind"))
		gate := &gate{held: make(chan struct{}), open: make(chan struct{})}
		waiting := account.Open(t, gate.request)
		for _, id := range []cloud.VolumeID{moved, behind.ID} { // a backend reads some properties once
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
		synctest.Wait() // the detach has made its reads, and waits
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

// gate delays the first request after it was closed until it is opened.
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
