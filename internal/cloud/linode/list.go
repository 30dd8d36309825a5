package linode

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// allVolumes reads all volumes that the credentials see, in every region: whoever compares the list with
// what should be attached must not miss those of a second region.
func (c *Cloud) allVolumes(ctx context.Context) ([]*volume, error) {
	asked := time.Now()
	all, err := remote.Complete(budget.WithPriority(ctx, budget.List), func(ctx context.Context, number int) ([]*volume, bool, error) {
		return c.volumePage(ctx, listing{number: number, size: perPage})
	}, func(v *volume) int { return v.id })
	if err != nil {
		return nil, apiErrors.Read("list volumes", err)
	}
	c.volumes.Store(int64(len(all)))
	ids := make(map[int]bool, len(all))
	for _, v := range all {
		ids[v.id] = true
		c.known.listed(v, asked)
	}
	c.known.only(ids)
	return all, nil
}

// A token is the last id of the page before it. It does not look like one, because any number could be an id.
const tokenPrefix = "after-"

var tokens = regexp.MustCompile(`^` + tokenPrefix + `([1-9][0-9]{0,17})$`)

// ListVolumes returns one page of all volumes, ordered by their ids, which never change.
func (c *Cloud) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	if page.Token != "" {
		token := tokens.FindStringSubmatch(page.Token)
		if token == nil {
			return cloud.VolumeList{}, fmt.Errorf("list volumes: token %.80q: %w", page.Token, fault.StalePage)
		}
		page.Token = token[1]
	}
	all, err := c.allVolumes(ctx)
	if err != nil {
		return cloud.VolumeList{}, err
	}
	part, next := remote.Cut(all, page, byNumber, func(v *volume) string { return string(volumeID(v.id)) })
	var list cloud.VolumeList
	if next != "" {
		list.Next = tokenPrefix + next
	}
	for _, v := range part {
		if !gone(v) {
			list.Volumes = append(list.Volumes, volumeOf(v))
		}
	}
	return list, nil
}
