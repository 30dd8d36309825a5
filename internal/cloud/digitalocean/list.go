package digitalocean

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// allVolumes reads all volumes that the credentials see, in every region: whoever compares the list with
// what should be attached must not miss those of a second region.
func (c *Cloud) allVolumes(ctx context.Context, p budget.Priority) ([]godo.Volume, error) {
	all, err := remote.Complete(budget.WithPriority(ctx, p), paged(func(ctx context.Context, opts *godo.ListOptions) ([]godo.Volume, *godo.Response, error) {
		return c.api.Storage.ListVolumes(ctx, &godo.ListVolumeParams{ListOptions: opts})
	}), func(v godo.Volume) string { return v.ID })
	if err != nil {
		return nil, readError("list volumes", err)
	}
	c.volumes.Store(int64(len(all)))
	c.known.sawAll(all)
	return all, nil
}

// manyVolumes answers for several volumes with one page. One that it lacks is read by itself.
func (c *Cloud) manyVolumes(ctx context.Context, _ []cloud.VolumeID) (map[cloud.VolumeID]*godo.Volume, error) {
	return c.page(ctx, budget.Read)
}

// page returns the volumes of an account that fit on one page, and nil where they do not.
func (c *Cloud) page(ctx context.Context, p budget.Priority) (map[cloud.VolumeID]*godo.Volume, error) {
	if c.volumes.Load() > perPage {
		return nil, nil
	}
	list, resp, err := c.api.Storage.ListVolumes(budget.WithPriority(ctx, p),
		&godo.ListVolumeParams{ListOptions: &godo.ListOptions{Page: 1, PerPage: perPage}})
	if err != nil {
		return nil, readError("look at several volumes", err)
	}
	found := make(map[cloud.VolumeID]*godo.Volume, len(list))
	for i := range list {
		c.known.saw(&list[i], false)
		found[cloud.VolumeID(list[i].ID)] = &list[i]
	}
	if resp.Links != nil && !resp.Links.IsLastPage() {
		c.volumes.Store(perPage + 1) // at least, until a whole list tells
		return nil, nil
	}
	c.volumes.Store(int64(len(list)))
	return found, nil
}

// ListVolumes returns one page of all volumes, ordered by their ids, which never change.
func (c *Cloud) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	if err := checkToken(page.Token); err != nil {
		return cloud.VolumeList{}, fmt.Errorf("list volumes: %w", err)
	}
	all, err := c.allVolumes(ctx, budget.List)
	if err != nil {
		return cloud.VolumeList{}, err
	}
	part, next := remote.Cut(all, page, strings.Compare, func(v godo.Volume) string { return v.ID })
	list := cloud.VolumeList{Next: next}
	for i := range part {
		list.Volumes = append(list.Volumes, volumeOf(&part[i]))
	}
	return list, nil
}

// ListSnapshots returns one page of all snapshots, or of one volume's. Those through which clones go are
// not shown: nobody asked for them.
func (c *Cloud) ListSnapshots(ctx context.Context, of cloud.VolumeID, page cloud.Page) (cloud.SnapshotList, error) {
	if err := checkToken(page.Token); err != nil {
		return cloud.SnapshotList{}, fmt.Errorf("list snapshots: %w", err)
	}
	var all []godo.Snapshot
	var err error
	switch {
	case of == "":
		all, err = c.allSnapshots(ctx, budget.List)
	case objectID(of):
		all, err = c.snapshotsOf(ctx, of)
	}
	if err != nil {
		return cloud.SnapshotList{}, err
	}
	all = slices.DeleteFunc(all, func(s godo.Snapshot) bool { return c.isTemporary(&s) })
	part, next := remote.Cut(all, page, strings.Compare, func(s godo.Snapshot) string { return s.ID })
	list := cloud.SnapshotList{Next: next}
	for i := range part {
		snap, err := snapshotOf(&part[i])
		if err != nil {
			return cloud.SnapshotList{}, err
		}
		list.Snapshots = append(list.Snapshots, snap)
	}
	return list, nil
}

// checkToken accepts what a page could have ended with: an id.
func checkToken(token string) error {
	if token != "" && !objectID(token) {
		return fmt.Errorf("token %.80q: %w", token, fault.StalePage)
	}
	return nil
}
