//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// readWriteOncePod: a second pod waits for the first, and is told why.
func (s *story) readWriteOncePod(ctx context.Context) error {
	p, err := s.run(ctx, "rwop.yaml")
	if err != nil {
		return err
	}
	if err := s.write(ctx, p); err != nil {
		return err
	}
	claim, _, _ := p.Claimed()
	if err := s.Create(ctx, newPod("second", claim, "")); err != nil {
		return err
	}
	event, err := s.UntilEvent(ctx, "second", patience, func(e kube.Event) bool {
		return strings.Contains(e.Message, "ReadWriteOncePod")
	})
	if err != nil {
		return err
	}
	s.Log("the second pod is told: %s: %s", event.Reason, event.Message)
	if err := s.wantPending(ctx, "second"); err != nil {
		return err
	}
	if err := s.wantSamePod(ctx, p); err != nil {
		return err
	}
	if err := s.end(ctx, p.Metadata.Name); err != nil {
		return err
	}
	second, err := s.UntilReady(ctx, "second", patience)
	if err != nil {
		return err
	}
	return s.wantData(ctx, second, s.sums[p.Metadata.Name])
}

func (s *story) wantPending(ctx context.Context, pod string) error {
	p, err := kube.Get[kube.Pod](ctx, s.Client, "pod", pod)
	if err == nil && p.Status.Phase != "Pending" {
		err = fmt.Errorf("pod %s is %s, want Pending", pod, p.State())
	}
	return err
}

// fill takes nearly all room of a node, by a claim and a pod of the returned name. What the cluster
// knows about the room may be half a minute old, so that the first try can be too large or too small.
func (s *story) fill(ctx context.Context, node string) (string, error) {
	name := "filler-" + node
	var err error
	for range 5 {
		if err = s.tryFill(ctx, name, node); err == nil {
			break
		}
		s.Log("fill %s: %v; trying again", node, err)
		if err := s.remove(ctx, name); err != nil {
			return "", err
		}
	}
	if err != nil {
		return "", err
	}
	return name, nil
}

func (s *story) tryFill(ctx context.Context, name, node string) error {
	class := s.env.classes["ext4"]
	room, err := s.env.room(ctx, class, node)
	if err != nil {
		return err
	}
	if err := s.place(ctx, claimOptions{name: name, class: class, size: (room - 96*mib) / mib * mib}, node); err != nil {
		return err
	}
	if _, err := s.UntilReady(ctx, name, 30*time.Second); err != nil {
		return err
	}
	// The provisioner asks for the room every 30 s.
	return s.Until(ctx, "the cluster knows that "+node+" is full", 75*time.Second, func(ctx context.Context) (bool, string, error) {
		left, err := s.env.room(ctx, class, node)
		return err == nil && left < 256*mib, fmt.Sprintf("%d bytes of room", left), err
	})
}

// fullPool: a pod whose claim fits nowhere waits, is told why, and starts when there is room.
func (s *story) fullPool(ctx context.Context) error {
	before, err := s.env.rooms(ctx)
	if err != nil {
		return err
	}
	filler, err := s.fill(ctx, s.at)
	if err != nil {
		return err
	}
	if err := s.place(ctx, claimOptions{name: "late", class: s.env.classes["ext4"], size: 512 * mib}, s.at); err != nil {
		return err
	}
	event, err := s.UntilEvent(ctx, "late", patience, func(e kube.Event) bool {
		return e.Reason == "FailedScheduling" && strings.Contains(e.Message, "enough free storage") ||
			e.Reason == "ProvisioningFailed" && strings.Contains(e.Message, "ResourceExhausted")
	})
	if err != nil {
		return err
	}
	s.Log("the pod is told: %s: %s", event.Reason, event.Message)
	if err := s.wantPending(ctx, "late"); err != nil {
		return err
	}
	// The neighbours of a full pool notice nothing.
	source, err := s.source(ctx)
	if err != nil {
		return err
	}
	if err := s.write(ctx, source); err != nil {
		return err
	}
	if err := s.remove(ctx, filler); err != nil {
		return err
	}
	if _, err := s.UntilReady(ctx, "late", patience); err != nil {
		return err
	}
	if err := s.remove(ctx, "late"); err != nil {
		return err
	}
	return s.env.untilRoom(ctx, before, gib)
}

// nodeWithRoom: while one node is full, a pod that may run anywhere goes to another one.
func (s *story) nodeWithRoom(ctx context.Context) error {
	s.wantTwoNodes()
	before, err := s.env.rooms(ctx)
	if err != nil {
		return err
	}
	for _, full := range s.env.nodes {
		filler, err := s.fill(ctx, full)
		if err != nil {
			return err
		}
		name := "away-from-" + full
		p, err := s.placed(ctx, claimOptions{name: name, class: s.env.classes["ext4"], size: 512 * mib}, "")
		if err != nil {
			return err
		}
		if p.Spec.NodeName == full {
			return fmt.Errorf("pod %s runs on %s, which has no room", name, full)
		}
		s.Log("%s is full, the pod went to %s", full, p.Spec.NodeName)
		if err := s.remove(ctx, filler, name); err != nil {
			return err
		}
		if err := s.env.untilRoom(ctx, before, gib); err != nil {
			return err
		}
	}
	return nil
}

// rooms reads how much room the driver says there is, by node; nothing where that is not a node's matter.
func (e *env) rooms(ctx context.Context) (map[string]int64, error) {
	rooms := map[string]int64{}
	if !e.nodeBound {
		return rooms, nil
	}
	for _, node := range e.nodes {
		room, err := e.room(ctx, e.classes["ext4"], node)
		if err != nil {
			return nil, err
		}
		rooms[node] = room
	}
	return rooms, nil
}

// untilRoom waits until the cluster knows that the pools have the room again that they had, but for a
// slack: in the middle of a story the numbers before may have been too old to know of a growth.
func (e *env) untilRoom(ctx context.Context, before map[string]int64, slack int64) error {
	return e.Until(ctx, "the pools have their room again", patience, func(ctx context.Context) (bool, string, error) {
		now, err := e.rooms(ctx)
		if err != nil {
			return false, "", err
		}
		for node, room := range before {
			if now[node] < room-slack || (slack == 0 && now[node] != room) {
				return false, fmt.Sprintf("%s has room for %d bytes, %d less than before", node, now[node], room-now[node]), nil
			}
		}
		return true, "", nil
	})
}
