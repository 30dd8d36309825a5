package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ModifyVolume replaces tags by their keys.
func (c *Cloud) ModifyVolume(ctx context.Context, id cloud.VolumeID, tags []cloud.Tag) error {
	a := c.account
	if !a.cfg.Capabilities.Modify {
		return fmt.Errorf("modify volume %s: %w", id, fault.Unsupported)
	}
	if err := a.elsewhere(string(id), fault.Precondition); err != nil {
		return fmt.Errorf("modify volume: %w", err)
	}
	for _, t := range tags {
		if t.Key == "" || strings.HasPrefix(t.Key, cloud.OwnTags) {
			return fmt.Errorf("modify volume %s: tag %q: %w", id, t.Key, fault.InvalidArgument)
		}
	}
	_, err := write(ctx, a, CallModifyVolume, func(s state, _ Fault) (none struct{}, err error) {
		vol, err := s.volume(id)
		if err != nil {
			return none, fmt.Errorf("modify: %w", err)
		}
		others := slices.DeleteFunc(slices.Clone(vol.Tags), func(has cloud.Tag) bool {
			return slices.ContainsFunc(tags, func(t cloud.Tag) bool { return t.Key == has.Key })
		})
		vol.Tags = slices.Concat(others, tags)
		s.volumes[id] = vol
		return none, nil
	})
	return err
}
