package linode

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ModifyVolume puts tags on a volume. The API replaces all tags of a volume, so the request is sent right after a read.
func (c *Cloud) ModifyVolume(ctx context.Context, id cloud.VolumeID, list []cloud.Tag) error {
	n, ok := volumeNumber(id)
	if !ok {
		return fmt.Errorf("modify volume %.80q: %w: no volume has such an id", id, fault.NotFound)
	}
	var wanted []string
	for _, t := range list {
		word, err := tagRule.Write(t)
		if strings.HasPrefix(strings.ToLower(t.Key), tags.Own) {
			err = fmt.Errorf("tag %q is the driver's own: %w", t.Key, fault.InvalidArgument)
		}
		if err != nil {
			return fmt.Errorf("modify volume %d: %w", n, err)
		}
		wanted = append(wanted, word)
	}
	var words []string // of the last read, with those wanted
	_, err := ops.Run(ctx, c.ops, ops.Op[*volume]{
		Name: fmt.Sprintf("put tags %q on volume %d", wanted, n), Kind: "update", Object: c.VolumeKey(id), Priority: budget.Write, Lease: lease,
		Submit: func(ctx context.Context, w *ops.Write) (*volume, string, error) {
			v, err := c.update(ctx, w, n, linodego.VolumeUpdateOptions{Tags: &words})
			return v, "", err
		},
		State: func(ctx context.Context) (*volume, error) {
			v, err := c.findVolume(ctx, n, budget.Read)
			if err == nil && v != nil {
				words = tags.Replace(v.Tags, wanted)
			}
			return v, err
		},
		Decide: func(v *volume, _ bool, refusal error) error { return decideModify(v, wanted, refusal) },
	})
	return err
}

// decideModify says what the state means for tags that are refused, or not sent yet.
func decideModify(v *volume, wanted []string, refusal error) error {
	switch {
	case gone(v):
		return fmt.Errorf("%w: there is no such volume", fault.NotFound)
	case slices.Equal(tags.Replace(v.Tags, wanted), slices.Sorted(slices.Values(v.Tags))):
		return nil
	case refusal != nil:
		return refusal
	default:
		return fault.Busy
	}
}
