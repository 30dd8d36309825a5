package digitalocean

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The objects of the API are the SDK's types. The SDK makes the requests, over the transport of package api.
type (
	volume   = godo.Volume
	snapshot = godo.Snapshot
	droplet  = godo.Droplet
	action   = godo.Action
)

// generic sends a request that the SDK has no call for:
//   - a snapshot of a volume is read and deleted below /v2/volumes/snapshots. The SDK's calls use /v2/snapshots, which needs the
//     scopes of images;
//   - Check reads one entry of each list.
func (c *Cloud) generic(ctx context.Context, call api.Call, method, path string, into any) error {
	_, err := one(ctx, call, func(ctx context.Context) (struct{}, *godo.Response, error) {
		req, err := c.sdk.NewRequest(ctx, method, path, nil)
		if err != nil {
			return struct{}{}, nil, err
		}
		resp, err := c.sdk.Do(ctx, req, into)
		return struct{}{}, resp, err
	})
	return err
}

// volumeSnapshotsPath is the path of a snapshot of a volume.
const volumeSnapshotsPath = "/v2/volumes/snapshots/"

// one calls the SDK for one object.
func one[T any](ctx context.Context, call api.Call, do func(context.Context) (T, *godo.Response, error)) (T, error) {
	return api.Through(ctx, call, func(ctx context.Context) (T, error) {
		v, _, err := do(ctx)
		return v, err
	})
}

// none calls the SDK for a change whose success is 204 without a body.
func none(ctx context.Context, w *ops.Write, do func(context.Context) (*godo.Response, error)) error {
	_, err := one(ctx, api.Call{Write: w, NoContent: true}, func(ctx context.Context) (struct{}, *godo.Response, error) {
		resp, err := do(ctx)
		return struct{}{}, resp, err
	})
	return err
}

// listOf describes a list.
type listOf[T any] struct {
	doing string
	// key is the key of the list in the answer.
	key      string
	priority budget.Priority
	call     func(ctx context.Context, opt *godo.ListOptions) ([]T, *godo.Response, error)
}

// meta is the part of a page about its list.
type meta struct {
	last  bool
	total int
}

// readPage reads one page. A page without its list proves nothing, and is an error.
func readPage[T any](ctx context.Context, l listOf[T], number, size int) (list []T, m meta, err error) {
	list, err = one(ctx, api.Call{Doing: l.doing, Priority: l.priority, Has: []string{l.key}}, func(ctx context.Context) ([]T, *godo.Response, error) {
		page, resp, err := l.call(ctx, &godo.ListOptions{Page: number, PerPage: size})
		if err != nil {
			return nil, nil, err
		}
		m.last = resp.Links == nil || resp.Links.IsLastPage()
		if resp.Meta != nil {
			m.total = resp.Meta.Total
		}
		return page, resp, nil
	})
	if err == nil && len(list) > size {
		err = fmt.Errorf("%s: %w: the page has %d entries, %d were asked for", l.doing, fault.Unavailable, len(list), size)
	}
	return list, m, err
}

// pages reads a list page by page.
func pages[T any](l listOf[T]) api.Pages[T] {
	return api.Pages[T]{Largest: perPage, Read: func(ctx context.Context, number, size int) ([]T, bool, error) {
		list, m, err := readPage(ctx, l, number, size)
		return list, m.last, err
	}}
}

// routes match paths with ids, for metrics.
var routes = []struct {
	pattern  *regexp.Regexp
	template string
}{
	{regexp.MustCompile(`/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "/{id}"},
	{regexp.MustCompile(`/v2/tags/[^/]+`), "/v2/tags/{id}"},
	{regexp.MustCompile(`/[0-9]+`), "/{id}"},
}

// routeOf returns the route of a path.
func routeOf(path string) string {
	for _, r := range routes {
		path = r.pattern.ReplaceAllString(path, r.template)
	}
	return strings.TrimSuffix(path, "/")
}
