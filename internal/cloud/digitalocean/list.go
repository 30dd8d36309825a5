package digitalocean

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// mostPasses is how often a list of several pages is read before it counts as one that cannot be read.
const mostPasses = 4

// complete reads all pages of a list. The cloud numbers its pages, so an entry that goes away moves all
// behind it up by one, and one of them is on no page that is read. Therefore a list of several pages
// counts only if all but the last are read a second time and are the same: what could have moved an
// entry unseen has changed one of them. The result is complete, or an error (failure P5).
func complete[T any](ctx context.Context, read func(context.Context, *godo.ListOptions) ([]T, *godo.Response, error), id func(T) string) ([]T, error) {
	for range mostPasses {
		var all []T
		var pages []int
		err := eachPage(ctx, func(opts *godo.ListOptions) (*godo.Response, error) {
			page, resp, err := read(ctx, opts)
			all = append(all, page...)
			pages = append(pages, len(page))
			return resp, err
		})
		if err != nil {
			return nil, err
		}
		same, err := rereadSame(ctx, read, id, all, pages)
		if err != nil {
			return nil, err
		}
		if same {
			return all, nil
		}
	}
	return nil, fmt.Errorf("it changed each of the %d times that it was read: %w", mostPasses, fault.Unavailable)
}

// rereadSame reads all pages but the last again and compares.
func rereadSame[T any](ctx context.Context, read func(context.Context, *godo.ListOptions) ([]T, *godo.Response, error), id func(T) string, all []T, pages []int) (bool, error) {
	at := 0
	for i, n := range pages[:len(pages)-1] {
		again, _, err := read(ctx, &godo.ListOptions{Page: i + 1, PerPage: perPage})
		if err != nil {
			return false, err
		}
		if !slices.EqualFunc(again, all[at:at+n], func(a, b T) bool { return id(a) == id(b) }) {
			return false, nil
		}
		at += n
	}
	return true, nil
}

// allVolumes reads all volumes that the credentials see, in every region: whoever compares the list with
// what should be attached must not miss those of a second region.
func (c *Cloud) allVolumes(ctx context.Context, p budget.Priority) ([]godo.Volume, error) {
	all, err := complete(budget.WithPriority(ctx, p), func(ctx context.Context, opts *godo.ListOptions) ([]godo.Volume, *godo.Response, error) {
		return c.api.Storage.ListVolumes(ctx, &godo.ListVolumeParams{ListOptions: opts})
	}, func(v godo.Volume) string { return v.ID })
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
	part, next := cut(all, page, func(v godo.Volume) string { return v.ID })
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
	part, next := cut(all, page, func(s godo.Snapshot) string { return s.ID })
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

// cut returns the part of a list that the page asks for. A token is the last id of the page before, so
// entries that come and go, that one included, move nothing.
func cut[T any](all []T, page cloud.Page, id func(T) string) (part []T, next string) {
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(id(a), id(b)) })
	from, found := slices.BinarySearchFunc(all, page.Token, func(v T, token string) int { return strings.Compare(id(v), token) })
	if found {
		from++
	}
	part = all[from:]
	if page.Most > 0 && len(part) > page.Most {
		part = part[:page.Most]
		next = id(part[len(part)-1])
	}
	return part, next
}
