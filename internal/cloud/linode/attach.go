package linode

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Attach makes the volume a disk of the Linode. It is there when the volume names the Linode and says that
// its device is ready. What is refused twice is requested without persistence, unless the state shows another reason.
func (c *Cloud) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	n, isVolume := volumeNumber(id)
	onto, isLinode := api.Number(node)
	switch {
	case !isVolume:
		return cloud.Device{}, fmt.Errorf("attach volume %.80q: %w: no volume has such an id", id, fault.NotFound)
	case !isLinode:
		return cloud.Device{}, fmt.Errorf("attach volume %d to %.80q: %w: no Linode has such an id", n, node, fault.NotFound)
	}
	refused := 0
	at, err := ops.Run(ctx, c.ops, ops.Op[placement]{
		Name: fmt.Sprintf("attach volume %d to Linode %d", n, onto), Kind: "attach",
		Object: volumeKey(n), Machine: linodeKey(onto), Priority: budget.Attach,
		Submit: func(ctx context.Context, w *ops.Write) (placement, string, error) {
			persists := c.persist.tries(onto, refused)
			vol, err := c.sendVolume(ctx, w, http.MethodPost, pathOf(volumesPath, n)+"/attach",
				linodego.VolumeAttachOptions{LinodeID: onto, PersistAcrossBoots: &persists})
			switch answer := api.AnswerOf(err); {
			case err == nil && refused > 0 && !persists:
				c.persist.refuses(onto)
			case answer != nil && answer.Refused() && fault.Of(err) != fault.Busy:
				refused++
			}
			return placement{vol: vol, onto: onto}, operation(n, toBeAt, onto), attachError(err)
		},
		State:  func(ctx context.Context) (placement, error) { return c.placement(ctx, n, onto) },
		Decide: decideAttach,
	})
	if err != nil {
		return cloud.Device{}, err
	}
	return deviceOf(at.vol), nil
}

// placement is where a volume is, and the Linode that it is wanted at.
type placement struct {
	vol    *volume // nil: there is none
	onto   int     // the Linode
	target *linode // what it is, read where the volume is free; nil: there is none
}

func (c *Cloud) placement(ctx context.Context, id, onto int) (at placement, err error) {
	at.onto = onto
	at.vol, err = c.findVolume(ctx, id, budget.Read)
	if err == nil && !gone(at.vol) && linodeOf(at.vol) == 0 {
		at.target, err = c.findLinode(ctx, onto)
	}
	return at, err
}

// decideAttach says what a refused attach means.
func decideAttach(at placement, settled bool, refusal error) error {
	switch {
	case gone(at.vol):
		return fmt.Errorf("%w: there is no such volume: %w", fault.NotFound, refusal)
	case at.vol.Status == statusBroken:
		return fmt.Errorf("%w: %w", errBroken(at.vol), refusal)
	case !settled || changing(at.vol):
		return fmt.Errorf("%w: %w", fault.Busy, refusal) // an attachment that is being undone is none (failure A1)
	case linodeOf(at.vol) == at.onto:
		return nil
	case linodeOf(at.vol) != 0:
		return fmt.Errorf("it is attached to Linode %d; it can be attached here when it is detached there: %w: %w",
			linodeOf(at.vol), fault.AttachedElsewhere, refusal)
	case at.target == nil:
		return fmt.Errorf("%w: there is no such Linode: %w", fault.NotFound, refusal)
	case at.target.region != at.vol.Region:
		return fmt.Errorf("the volume is in %s and the Linode in %s: %w: %w", at.vol.Region, at.target.region, fault.WrongZone, refusal)
	case at.target.used >= at.target.slots:
		return fmt.Errorf("the Linode has no free slot, %d of %d are taken by volumes and local disks: %w: %w",
			at.target.used, at.target.slots, fault.NoSlot, refusal)
	case at.target.status == linodego.InstanceOffline:
		return fmt.Errorf("the Linode is powered off, and a volume can be attached to a running one only: %w: %w", fault.Precondition, refusal)
	}
	// The refusal was about a state that has changed since, or about something that the API does not show.
	return fmt.Errorf("the volume is free and the Linode has a free slot now: %w: %w", fault.Busy, refusal)
}

// attachError keeps fault.Exhausted for slots, which send the pod to another node: a quota of the account is the
// same on all of them. Whether a slot is free is for the state to say.
func attachError(err error) error {
	if fault.Of(err) == fault.Exhausted {
		return fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	return err
}

// linode is what the API shows of a Linode, as far as it says why a volume cannot be attached.
type linode struct {
	region string
	status linodego.InstanceStatus
	// used and slots are of volumes and local disks together.
	used, slots int
}

// findLinode reads a Linode and what is in its slots; nil: there is none.
func (c *Cloud) findLinode(ctx context.Context, id int) (*linode, error) {
	doing, path := fmt.Sprintf("read Linode %d", id), pathOf(instancesPath, id)
	var l linodego.Instance
	err := c.api.Do(ctx, get(doing, path, budget.Read), &l)
	switch {
	case statusNotFound(err):
		return nil, nil //nolint:nilnil // "there is none" is an answer here
	case err != nil:
		return nil, err
	case l.ID != id || l.Specs == nil:
		return nil, fmt.Errorf("%s: %w: the answer is about something else", doing, fault.Unavailable)
	}
	volumes, _, err := readPage[volume](ctx, c, listOf{doing: doing + "'s volumes", path: path + "/volumes"}, 1)
	if err != nil {
		return nil, err
	}
	disks, _, err := readPage[linodego.InstanceDisk](ctx, c, listOf{doing: doing + "'s disks", path: path + "/disks"}, 1)
	return &linode{region: l.Region, status: l.Status, used: len(volumes) + len(disks), slots: slotsFor(l.Specs.Memory)}, err
}

// slotsFor is how many disks and volumes a Linode with so many MB of memory can have: one for each GiB, at
// least 8 and at most 64.
func slotsFor(memory int) int { return min(64, max(8, memory/1024)) }

// lease is for how long a state may decide about a request that the API does not check. Another controller needs
// a detach and an attach, of seconds each, to move the volume meanwhile.
const lease = 2 * time.Second

// Detach takes the volume off the Linode, or off whatever Linode.
func (c *Cloud) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	n, ok := volumeNumber(id)
	if !ok {
		return nil // no volume, so it is free
	}
	if node == "" {
		return c.detachAll(ctx, n)
	}
	from, ok := api.Number(node)
	if !ok {
		return nil // a volume is never a disk of what is no Linode
	}
	return c.detach(ctx, n, from)
}

// detachAll takes the volume off whatever it is attached to, or is about to be.
func (c *Cloud) detachAll(ctx context.Context, id int) error {
	ctx, cancel := c.ops.Bounded(ctx)
	defer cancel()
	for {
		v, err := c.findVolume(ctx, id, budget.Detach)
		if err != nil || gone(v) || linodeOf(v) == 0 {
			return err
		}
		if err := c.detach(ctx, id, linodeOf(v)); err != nil {
			return err
		}
	}
}

// detach takes the volume off a Linode. The request does not say which, so it is sent right after a read that shows
// the volume there (failure A1).
func (c *Cloud) detach(ctx context.Context, id, from int) error {
	_, err := ops.Run(ctx, c.ops, ops.Op[*volume]{
		Name: fmt.Sprintf("detach volume %d from Linode %d", id, from), Kind: "detach",
		Object: volumeKey(id), Machine: linodeKey(from), Priority: budget.Detach, Lease: lease,
		Submit: func(ctx context.Context, w *ops.Write) (*volume, string, error) {
			return nil, operation(id, toBeFree, from), c.sendEmpty(ctx, w, http.MethodPost, pathOf(volumesPath, id)+"/detach")
		},
		State: func(ctx context.Context) (*volume, error) { return c.findVolume(ctx, id, budget.Detach) },
		Decide: func(v *volume, _ bool, refusal error) error {
			return decideDetach(v, from, refusal)
		},
	})
	return err
}

// decideDetach says what the state means for a detach that is refused, or not sent yet. An attach shows in the
// volume with its answer, so a volume that is not here is not coming either.
func decideDetach(v *volume, from int, refusal error) error {
	switch {
	case gone(v) || linodeOf(v) != from:
		return nil
	case refusal == nil:
		return fault.Busy
	case fault.Of(refusal) == fault.NotFound:
		// The Linode is gone and the volume's record lags behind it (failure A11).
		return fmt.Errorf("the volume still shows as attached to it; this ends by itself when the Linode is gone: %w: %w", fault.Unavailable, refusal)
	default:
		return fmt.Errorf("%w: %w", fault.Busy, refusal)
	}
}
