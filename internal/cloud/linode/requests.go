package linode

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func (c *Cloud) traits() block.Traits {
	return block.Traits{
		VolumeWord: "volume", MachineWord: "Linode",
		VolumeID:  api.IsNumber[cloud.VolumeID],
		MachineID: api.IsNumber[cloud.NodeID],
		SnapshotID: func(id cloud.SnapshotID) bool {
			_, ok := snapshotNumber(id)
			return ok
		},
		Zone:         slug.MatchString,
		Largest:      maxSize * cloud.GiB,
		ShowsChanges: true,
		ConfirmsLate: true,
		Locks:        requests{c: c}.Locks,
	}
}

// requests implements block.API, for the volumes that are snapshots or for the others.
type requests struct {
	c         *Cloud
	snapshots bool
}

func (r requests) Volume(ctx context.Context, id cloud.VolumeID, p budget.Priority) (*block.Volume, error) {
	v, err := r.c.findVolume(ctx, api.Number(id), p)
	if gone(v) || isSnapshot(v) != r.snapshots || err != nil {
		return nil, err
	}
	return r.c.stateOf(v), nil
}

// stateOf returns a volume as a block.Volume.
func (c *Cloud) stateOf(v *volume) *block.Volume {
	return &block.Volume{Volume: c.volumeOf(v), Hindered: hindrance(v), Attaching: attaching(v), Version: versionOf(v)}
}

// hindrance returns why a volume cannot be changed now; nil: it can.
func hindrance(v *volume) error {
	switch {
	case v.Status == statusBroken:
		return errBroken(v)
	case pending(v):
		return fault.Busy
	case v.Status == statusRotating:
		return errRotating
	case v.Status != statusActive:
		return fmt.Errorf("volume %d is in the state %q: %w", v.ID, v.Status, fault.Unavailable)
	}
	return nil
}

func (r requests) Find(ctx context.Context, request string) (*block.Volume, error) {
	same, err := r.c.labelled(ctx, r.c.labelOf(request))
	if err != nil {
		return nil, err
	}
	same = slices.DeleteFunc(same, func(v volume) bool { return gone(&v) })
	v, err := block.Find(request, same, func(v volume) bool { return r.c.madeFor(request, &v) },
		func(v volume) string { return fmt.Sprintf("volume %d (see its tags)", v.ID) })
	return r.c.stateOf(&v), err
}

// Attach requests an attachment without persistence after the cloud has refused two with it, unless the state shows another reason.
func (r requests) Attach(ctx context.Context, w *ops.Write, id cloud.VolumeID, to cloud.NodeID) (cloud.Device, string, error) {
	c, n, onto := r.c, api.Number(id), api.Number(to)
	persists := c.persist.tries(onto, w.Refused)
	v, err := c.sendVolume(ctx, w, func(ctx context.Context) (*volume, error) {
		return c.sdk.AttachVolume(ctx, n, &linodego.VolumeAttachOptions{LinodeID: onto, PersistAcrossBoots: &persists})
	})
	switch {
	case fault.Of(err) == fault.Exhausted: // a quota of the account: slots are for the state to say
		return cloud.Device{}, "", fmt.Errorf("%w: %w", fault.Unavailable, err)
	case err != nil:
		return cloud.Device{}, "", err
	case w.Refused > 0 && !persists:
		c.persist.refuses(onto)
	}
	return deviceOf(v), operation(n, toBeAt, onto), nil
}

func (r requests) Detach(ctx context.Context, w *ops.Write, id cloud.VolumeID, from cloud.NodeID) (string, error) {
	n := api.Number(id)
	return operation(n, toBeFree, api.Number(from)), sendEmpty(ctx, w, func(ctx context.Context) error { return r.c.sdk.DetachVolume(ctx, n) })
}

func (r requests) Resize(ctx context.Context, w *ops.Write, v *block.Volume, size cloud.Bytes) (string, error) {
	n, want := api.Number(v.ID), int(block.GiB(size))
	_, err := api.Through(ctx, api.Call{Write: w, Has: []string{"id"}}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.c.sdk.ResizeVolume(ctx, n, want) // which keeps nothing of the answer
	})
	return operation(n, toBeActive, want), err
}

func (r requests) Delete(ctx context.Context, w *ops.Write, id cloud.VolumeID) (string, error) {
	n := api.Number(id)
	err := sendEmpty(ctx, w, func(ctx context.Context) error { return r.c.sdk.DeleteVolume(ctx, n) })
	if err == nil {
		r.c.labels.Invalidate(n)
	}
	return "", err
}

// Machine reads a Linode and its slots, which volumes and local disks share.
func (r requests) Machine(ctx context.Context, node cloud.NodeID) (*block.Machine, error) {
	c, id := r.c, api.Number(node)
	doing := fmt.Sprintf("read Linode %d", id)
	l, err := api.Through(ctx, api.Call{Doing: doing, Priority: budget.Read, Has: []string{"specs"}, Is: map[string]string{"id": string(node)}}, func(ctx context.Context) (*linodego.Instance, error) {
		return c.sdk.GetInstance(ctx, id)
	})
	switch {
	case api.NotFound(err):
		return nil, nil //nolint:nilnil // "there is none" is an answer here
	case err != nil:
		return nil, err
	}
	volumes, _, err := readPage(ctx, listOf[volume]{doing: doing + "'s volumes", call: func(ctx context.Context, opts *linodego.ListOptions) ([]volume, error) {
		return c.sdk.ListInstanceVolumes(ctx, id, opts)
	}}, 1, perPage)
	if err != nil {
		return nil, err
	}
	disks, _, err := readPage(ctx, listOf[linodego.InstanceDisk]{doing: doing + "'s disks", call: func(ctx context.Context, opts *linodego.ListOptions) ([]linodego.InstanceDisk, error) {
		return c.sdk.ListInstanceDisks(ctx, id, opts)
	}}, 1, perPage)
	m := &block.Machine{Zone: l.Region, Used: len(volumes) + len(disks), Slots: slotsFor(l.Specs.Memory)}
	switch l.Status {
	case linodego.InstanceRunning:
	case linodego.InstanceOffline:
		m.Hindered = fmt.Errorf("the Linode is powered off, and a volume can be attached to a running one only: %w", fault.Precondition)
	default: // Busy would let Attach give up the persistence for a state that passes
		m.Hindered = fmt.Errorf("the Linode is in the state %q, and a volume can be attached to a running one only; if that state does not end, "+
			"look at the Linode in the Cloud Manager: %w", l.Status, fault.Unavailable)
	}
	return m, err
}

// slotsFor returns how many disks and volumes a Linode with this memory in MB can have: one for each GiB, at least 8 and at most 64.
func slotsFor(memory int) int { return min(64, max(8, memory/1024)) }

// Locks returns the locks of a volume, if the API shows any.
func (r requests) Locks(ctx context.Context, id cloud.VolumeID) string {
	locks, err := r.c.locks(ctx, id)
	if err != nil {
		return "" // the cloud's words have to do
	}
	return strings.Join(locks, ", ")
}

// Persist is whether attachments survive a boot of their Linode. Such an attachment needs a slot in the Linode's configuration profile. The
// API's description contradicts itself about their number: 8, or one for each GiB of memory up to 64.
type Persist string

const (
	// PersistAuto requests an attachment that survives, and, if the cloud refuses that, one that does not.
	PersistAuto Persist = "auto"
	// PersistAlways requests only attachments that survive.
	PersistAlways Persist = "true"
	// PersistNever requests attachments that end with the next boot.
	PersistNever Persist = "false"
)

// CheckPersist refuses any other value; "" is allowed.
func CheckPersist(p Persist) error {
	if !slices.Contains([]Persist{"", PersistAuto, PersistAlways, PersistNever}, p) {
		return fmt.Errorf("%q: neither auto, true nor false: %w", p, fault.InvalidArgument)
	}
	return nil
}

// persistence chooses how volumes are attached. It caches which Linodes refuse attachments that survive, which only saves a request for
// each further volume.
type persistence struct {
	mode    Persist
	refused block.Cache[int, time.Time]
}

// retryPersist is how long the refusal of a Linode is cached. Its profile may have a free slot later.
const retryPersist = time.Hour

// tries reports whether to request an attachment that survives. refused is how many earlier requests of the call were refused: the first
// may have been refused because of another change of the volume.
func (p *persistence) tries(linode, refused int) bool {
	if p.mode != PersistAuto {
		return p.mode == PersistAlways
	}
	at, _ := p.refused.Get(linode)
	return refused < 2 && time.Since(at) > retryPersist
}

// refuses records that a Linode accepted a volume only without persistence.
func (p *persistence) refuses(linode int) { p.refused.Put(linode, time.Now()) }
