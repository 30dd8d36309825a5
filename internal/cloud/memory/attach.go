package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Attach gives the volume to one node.
func (c *Cloud) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	a := c.account
	if !a.cfg.Capabilities.Attach {
		return cloud.Device{}, fmt.Errorf("attach: %w", fault.Unsupported)
	}
	if err := a.elsewhere(string(id), fault.Precondition); err != nil {
		return cloud.Device{}, fmt.Errorf("attach: %w", err)
	}
	return write(ctx, a, CallAttach, func(s state, _ Fault) (cloud.Device, error) {
		vol, err := s.volume(id)
		if err != nil {
			return cloud.Device{}, fmt.Errorf("attach to %s: %w", node, err)
		}
		n, exists := a.nodes[node]
		switch slots := a.cfg.Slots; {
		case !exists:
			return cloud.Device{}, fmt.Errorf("attach %s: node %q: %w", id, node, fault.NotFound)
		case slices.Contains(vol.AttachedTo, node):
			return vol.Device, nil
		case len(vol.AttachedTo) > 0:
			return cloud.Device{}, fmt.Errorf("attach %s to %s: %w: it is attached to %s", id, node, fault.AttachedElsewhere, vol.AttachedTo[0])
		case vol.Zone != n.Zone:
			return cloud.Device{}, fmt.Errorf("attach %s in %s to %s in %s: %w", id, vol.Zone, node, n.Zone, fault.WrongZone)
		case slots > 0 && s.attached(node) >= slots:
			return cloud.Device{}, fmt.Errorf("attach %s to %s: %w: it has its %d volumes", id, node, fault.NoSlot, slots)
		}
		vol.AttachedTo = []cloud.NodeID{node}
		s.volumes[id] = vol
		return vol.Device, nil
	})
}

// attached counts the volumes of a node.
func (s state) attached(node cloud.NodeID) int {
	n := 0
	for _, vol := range s.volumes {
		if slices.Contains(vol.AttachedTo, node) {
			n++
		}
	}
	return n
}

// Detach takes the volume off the node that is named, or off all.
func (c *Cloud) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	a := c.account
	if !a.cfg.Capabilities.Attach {
		return fmt.Errorf("detach: %w", fault.Unsupported)
	}
	if err := a.elsewhere(string(id), fault.Precondition); err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	_, err := write(ctx, a, CallDetach, func(s state, _ Fault) (none struct{}, err error) {
		vol, exists := s.volumes[id]
		if !exists {
			return none, nil
		}
		var left []cloud.NodeID // nil when none is left, as in a volume that never was attached
		for _, n := range vol.AttachedTo {
			if node != "" && n != node {
				left = append(left, n)
			}
		}
		vol.AttachedTo = left
		s.volumes[id] = vol
		return none, nil
	})
	return err
}
