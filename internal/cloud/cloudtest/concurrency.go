package cloudtest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// crowd returns the number of concurrent callers.
func (h Harness) crowd() int {
	if h.Slow {
		return 10
	}
	return 50
}

// together makes a call from many goroutines at the same moment.
func (e *env) together(call func(n int)) {
	var callers sync.WaitGroup
	start := make(chan struct{})
	for n := range e.h.crowd() {
		callers.Go(func() {
			<-start
			call(n)
		})
	}
	close(start)
	callers.Wait()
}

func (h Harness) testConcurrency(t *testing.T) {
	h.check(t, "many creates of one name at once make one volume", func(e *env) {
		var mu sync.Mutex
		made := map[cloud.VolumeID]int{}
		e.together(func(int) {
			vol, err := e.c.CreateVolume(e.Context(), e.request("popular"))
			switch {
			case err == nil:
				mu.Lock()
				defer mu.Unlock()
				made[vol.ID]++
			case e.h.Idempotent:
				e.want(err, "CreateVolume among many", fault.Busy, fault.Unavailable, fault.Uncertain)
			default:
				e.want(err, "CreateVolume among many", fault.Conflict, fault.Busy, fault.Unavailable, fault.Uncertain)
			}
		})
		vol := e.volume("popular")
		delete(made, vol.ID)
		if len(made) > 0 {
			e.Errorf("others than %s were made too: %v", vol.ID, made)
		}
		e.left(vol.ID)
	})
	h.check(t, "many creates and deletes of different volumes at once leave what was asked for", func(e *env) {
		var mu sync.Mutex
		var want []cloud.VolumeID
		e.together(func(n int) {
			vol, err := e.settle(e.request(fmt.Sprintf("one-of-many-%d", n)))
			if err != nil {
				e.Errorf("CreateVolume = %v", err)
				return
			}
			if n%2 == 1 {
				e.ok(e.c.DeleteVolume(e.Context(), vol.ID), "DeleteVolume")
				return
			}
			mu.Lock()
			defer mu.Unlock()
			want = append(want, vol.ID)
		})
		e.left(want...)
	})
	h.testCrowdedVolume(t)
}

// testCrowdedVolume tests many concurrent changes of one volume.
func (h Harness) testCrowdedVolume(t *testing.T) {
	h.attaches(t, "many attaches of one volume to two nodes at once give it to one node", func(e *env, vol cloud.Volume) {
		var mu sync.Mutex
		winners := map[cloud.NodeID]bool{}
		e.together(func(n int) {
			node := e.h.Nodes[n%2]
			_, err := e.c.Attach(e.Context(), vol.ID, node)
			if err != nil {
				e.want(err, "Attach among many", fault.Precondition, fault.Busy, fault.Unavailable, fault.Uncertain)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			winners[node] = true
		})
		if len(winners) != 1 {
			e.Errorf("the volume was given to %v, want one node", winners)
		}
		for node := range winners {
			e.at(vol.ID, node)
		}
	})
	h.check(t, "many deletes of one volume at once are no error", func(e *env) {
		vol := e.volume("unwanted")
		e.together(func(int) {
			e.want(e.c.DeleteVolume(e.Context(), vol.ID), "DeleteVolume among many", fault.None, fault.Busy, fault.Unavailable, fault.Uncertain)
		})
		e.left()
	})
	h.expands(t, "many expansions of one volume at once end at the largest that was answered", func(e *env, vol cloud.Volume) {
		var mu sync.Mutex
		largest := vol.Size
		e.together(func(n int) {
			exp, err := e.c.ExpandVolume(e.Context(), vol.ID, vol.Size+cloud.Bytes(n%3)*e.caps.SizeStep)
			if err != nil {
				e.want(err, "ExpandVolume among many", fault.Busy, fault.Unavailable, fault.Uncertain)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			largest = max(largest, exp.Size)
		})
		if got := e.get(vol.ID).Size; got != largest {
			e.Errorf("the volume has %s, want %s", got, largest)
		}
	})
}
