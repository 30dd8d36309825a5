package linode

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// DeleteVolume removes a volume. The cloud's answer says that it is done.
func (c *Cloud) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	n, ok := volumeNumber(id)
	if !ok {
		return nil
	}
	_, err := c.remove(ctx, removal{id: n, name: fmt.Sprintf("delete volume %d", n), priority: budget.Write})
	return err
}

// removal says which volume is deleted.
type removal struct {
	id       int
	name     string
	priority budget.Priority
	// only, unless it is nil, says of the volume as it is right before the request whether it is to go.
	only func(v *volume) bool
}

// remainder is what is known of a volume that is to go.
type remainder struct {
	vol   *volume
	locks []string // read where a request was refused
	sent  bool
}

// remove deletes a volume, and reports whether it was there. Nothing public says that the API refuses to delete
// what is attached, so it is sent right after a read that shows the volume free.
func (c *Cloud) remove(ctx context.Context, r removal) (removed bool, err error) {
	sent := false
	rest, err := ops.Run(ctx, c.ops, ops.Op[remainder]{
		Name: r.name, Kind: "delete", Object: volumeKey(r.id), Priority: r.priority, Lease: lease,
		Submit: func(ctx context.Context, w *ops.Write) (remainder, string, error) {
			sent = true
			err := c.sendEmpty(ctx, w, http.MethodDelete, pathOf(volumesPath, r.id))
			if statusNotFound(err) {
				err = nil
			}
			return remainder{sent: true}, "", err
		},
		State: func(ctx context.Context) (rest remainder, err error) {
			rest.vol, err = c.findVolume(ctx, r.id, r.priority)
			if err == nil && sent && !gone(rest.vol) {
				rest.locks = c.locksOf(ctx, r.id)
			}
			return rest, err
		},
		Decide: func(rest remainder, settled bool, refusal error) error {
			if refusal == nil && r.only != nil && !gone(rest.vol) && !r.only(rest.vol) {
				return nil
			}
			return decideDelete(rest, settled, refusal)
		},
	})
	if err == nil && rest.sent {
		c.seen.forget(r.id)
	}
	return rest.sent, err
}

// decideDelete says what the state means for a delete that is refused, or not sent yet.
func decideDelete(rest remainder, settled bool, refusal error) error {
	v := rest.vol
	if gone(v) {
		return nil
	}
	because := func(why error) error {
		if refusal == nil {
			return why
		}
		return fmt.Errorf("%w: %w", why, refusal)
	}
	switch {
	case linodeOf(v) != 0 && (settled || refusal == nil):
		return because(fmt.Errorf("it is attached to Linode %d; it can be deleted when it is detached: %w", linodeOf(v), fault.VolumeInUse))
	case len(rest.locks) > 0:
		return because(fmt.Errorf("it has the lock %s, which has to be removed first: %w", strings.Join(rest.locks, ", "), fault.VolumeInUse))
	case refusal != nil && v.Status == statusRotating:
		return because(errRotating)
	default:
		return because(fault.Busy) // what was in the way has ended
	}
}

// locksOf returns the locks of a volume, where the API shows such.
func (c *Cloud) locksOf(ctx context.Context, id int) []string {
	var root struct {
		Locks []string `json:"locks"`
	}
	if err := c.api.Do(ctx, get("", pathOf(betaVolumesPath, id), budget.Read), &root); err != nil {
		return nil // the cloud's words have to do
	}
	return root.Locks
}

// GetVolume returns the present state of a volume.
func (c *Cloud) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	n, ok := volumeNumber(id)
	if !ok {
		return cloud.Volume{}, fmt.Errorf("volume %.80q: %w: no volume has such an id", id, fault.NotFound)
	}
	v, err := c.readVolume(ctx, n, budget.Read)
	if err != nil {
		return cloud.Volume{}, err
	}
	return c.volumeOf(v), nil
}

// readVolume reads one volume. fault.NotFound when there is none.
func (c *Cloud) readVolume(ctx context.Context, id int, p budget.Priority) (*volume, error) {
	doing := fmt.Sprintf("read volume %d", id)
	var v volume
	err := c.api.Do(ctx, get(doing, pathOf(volumesPath, id), p), &v)
	switch {
	case err != nil:
		return nil, err
	case v.ID != id:
		return nil, fmt.Errorf("%s: %w: the answer is about something else", doing, fault.Unavailable)
	case gone(&v):
		return nil, fmt.Errorf("%s: it is being deleted: %w", doing, fault.NotFound)
	}
	c.seen.put(&v)
	return &v, nil
}

// findVolume is readVolume with a nil for a volume that does not exist.
func (c *Cloud) findVolume(ctx context.Context, id int, p budget.Priority) (*volume, error) {
	v, err := c.readVolume(ctx, id, p)
	if fault.Of(err) == fault.NotFound {
		c.seen.forget(id)
		return nil, nil //nolint:nilnil // "there is none" is an answer here, and every caller asks for it
	}
	return v, err
}

// FindVolume returns the volume made under this request name, once it is active.
func (c *Cloud) FindVolume(ctx context.Context, name string) (cloud.Volume, error) {
	doing := fmt.Sprintf("find volume %q", name)
	missing := fmt.Errorf("%s: %w", doing, fault.NotFound)
	if name == "" {
		return cloud.Volume{}, missing
	}
	ctx, cancel := c.ops.Bounded(ctx)
	defer cancel()
	same, err := c.labelled(ctx, c.labelOf(name))
	if err != nil {
		return cloud.Volume{}, err
	}
	same = slices.DeleteFunc(same, func(v volume) bool { return gone(&v) })
	at := slices.IndexFunc(same, func(v volume) bool { return c.madeFor(name, &v) })
	switch {
	case len(same) == 0:
		return cloud.Volume{}, missing
	case at < 0:
		return cloud.Volume{}, fmt.Errorf("%s: volume %d has its label %s and was made for something else (see its tags): %w",
			doing, same[0].ID, same[0].Label, fault.Conflict)
	}
	v := &same[at]
	if v.Status != statusActive {
		if v, err = c.settled(ctx, v.ID); err != nil {
			return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
		}
	}
	switch {
	case gone(v):
		return cloud.Volume{}, missing
	case v.Status == statusBroken:
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, errBroken(v))
	}
	return c.volumeOf(v), nil
}

// settled reads a volume once nothing is under way with it; nil: there is none.
func (c *Cloud) settled(ctx context.Context, id int) (*volume, error) {
	for { // another controller may begin something before the read
		v, err := ops.Settle(ctx, c.ops, volumeKey(id), func(ctx context.Context) (*volume, error) { return c.findVolume(ctx, id, budget.Read) })
		if err != nil || gone(v) || !changing(v) {
			return v, err
		}
	}
}

// labelled returns the volumes with exactly this label, oldest first. Usually there is one at most.
func (c *Cloud) labelled(ctx context.Context, label string) ([]volume, error) {
	same, err := c.filtered(ctx, label, budget.Read)
	return slices.DeleteFunc(same, func(v volume) bool { return v.Label != label }), err
}

// filtered returns the volumes whose labels the filter fits, oldest first.
func (c *Cloud) filtered(ctx context.Context, label any, p budget.Priority) ([]volume, error) {
	same, err := pages[volume](c, listOf{
		doing: fmt.Sprintf("find volumes labelled %v", label), path: volumesPath, filter: map[string]any{"label": label}, priority: p,
	}).All(ctx)
	slices.SortFunc(same, func(a, b volume) int { return a.ID - b.ID })
	return same, err
}

// ListVolumes returns one page of all volumes that the credentials see, in every region, ordered by their ids,
// which never change: the attacher compares the list with what should be attached.
func (c *Cloud) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	page, err := api.PageOf(page)
	if err != nil {
		return cloud.VolumeList{}, fmt.Errorf("list volumes: %w", err)
	}
	all, err := api.Complete(ctx, pages[volume](c, listOf{doing: "list volumes", path: volumesPath, priority: budget.List}),
		func(v volume) int { return v.ID })
	if err != nil {
		return cloud.VolumeList{}, err
	}
	part, next := api.Cut(all, page, api.ByNumber, func(v volume) string { return string(volumeID(v.ID)) })
	list := cloud.VolumeList{Next: next}
	for i := range part {
		if !gone(&part[i]) {
			list.Volumes = append(list.Volumes, c.volumeOf(&part[i]))
		}
	}
	return list, nil
}

// volumeOf translates a volume.
func (c *Cloud) volumeOf(v *volume) cloud.Volume {
	vol := cloud.Volume{
		ID:         volumeID(v.ID),
		Name:       v.Label,
		Size:       sizeOf(v),
		Zone:       v.Region,
		Source:     tags.SourceOf(v.Tags),
		Parameters: parametersOf(v),
		Device:     deviceOf(v),
		Tags:       tags.Read(v.Tags),
		Health:     healthOf(v),
		Mark:       c.markOf(v),
	}
	if linodeOf(v) != 0 {
		vol.AttachedTo = []cloud.NodeID{nodeID(linodeOf(v))}
	}
	return vol
}

// healthOf is what is wrong with a volume: one that the cloud could not make or change.
func healthOf(v *volume) cloud.Health {
	if v.Status != statusBroken {
		return cloud.Health{}
	}
	return cloud.Health{
		Kind: cloud.Inaccessible, Reason: "ContactSupport",
		Message: fmt.Sprintf("volume %d is in the state %q; open a ticket with its id", v.ID, v.Status),
	}
}

// parametersOf returns nothing about encryption where the API shows nothing about it.
func parametersOf(v *volume) []cloud.Parameter {
	if v.Encryption == "" {
		return nil
	}
	return []cloud.Parameter{{Name: ParamEncrypted, Value: strconv.FormatBool(v.Encryption == encrypted)}}
}

// deviceOf is how a Linode recognises a volume: the disk reports the label that the volume had when it was
// attached, and the API shows it as a link.
func deviceOf(v *volume) cloud.Device {
	link := v.FilesystemPath[strings.LastIndex(v.FilesystemPath, "/")+1:]
	if !strings.HasPrefix(link, devicePrefix) {
		link = devicePrefix + v.Label
	}
	return cloud.Device{Name: link, Serial: strings.TrimPrefix(link, devicePrefix)}
}
