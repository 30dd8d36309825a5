package digitalocean

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The objects of the API are the SDK's. Its calls are not used: they read answers of any length, take any
// answer to a DELETE for a success and a list that is missing for an empty one.
type (
	volume   = godo.Volume
	snapshot = godo.Snapshot
	droplet  = godo.Droplet
)

// action is what is used of an action.
type action struct {
	ID     int    `json:"id"`
	Status string `json:"status"`
}

const (
	volumesPath   = "/v2/volumes"
	actionsPath   = "/v2/actions"
	snapshotsPath = "/v2/snapshots"
	regionsPath   = "/v2/regions"
	dropletsPath  = "/v2/droplets"
	tagsPath      = "/v2/tags"
	// volumeSnapshotsPath has one snapshot of a volume. The same below snapshotsPath needs scopes of images.
	volumeSnapshotsPath = volumesPath + "/snapshots"
)

func get(doing, path string, p budget.Priority) api.Request {
	return api.Request{Doing: doing, Method: http.MethodGet, Path: path, Priority: p}
}

// remove deletes an object. That it is gone already is no error: ids are never given twice.
func (c *Cloud) remove(ctx context.Context, w *ops.Write, path string) error {
	err := c.api.Do(ctx, api.Request{Method: http.MethodDelete, Path: path, Write: w, NoContent: true}, nil)
	if a := api.AnswerOf(err); a != nil && a.Status == http.StatusNotFound {
		return nil
	}
	return err
}

// listOf says which list is read.
type listOf struct {
	doing, path string
	// key holds the list in the answer.
	key      string
	query    url.Values
	perPage  int // 0: as many as the cloud allows
	priority budget.Priority
}

// meta is what a page says of its list.
type meta struct {
	last  bool
	total int
}

// readPage reads one page. A page without its list proves nothing, and is an error.
func readPage[T any](ctx context.Context, c *Cloud, l listOf, number int) ([]T, meta, error) {
	r := get(l.doing, l.path, l.priority)
	size := max(l.perPage, 0)
	if size == 0 {
		size = perPage
	}
	r.Query = url.Values{"page": {strconv.Itoa(number)}, "per_page": {strconv.Itoa(size)}}
	for name, values := range l.query {
		r.Query[name] = values
	}
	var root map[string]json.RawMessage
	if err := c.api.Do(ctx, r, &root); err != nil {
		return nil, meta{}, err
	}
	var list []T
	var links godo.Links
	var counts godo.Meta
	for key, into := range map[string]any{l.key: &list, "links": &links, "meta": &counts} {
		if raw, has := root[key]; has {
			if err := json.Unmarshal(raw, into); err != nil {
				return nil, meta{}, fmt.Errorf("%s: %w: the answer's %s cannot be read: %w", l.doing, fault.Unavailable, key, err)
			}
		}
	}
	switch {
	case list == nil:
		return nil, meta{}, fmt.Errorf("%s: %w: the answer has no %s", l.doing, fault.Unavailable, l.key)
	case len(list) > size:
		return nil, meta{}, fmt.Errorf("%s: %w: the page has %d entries, %d were asked for", l.doing, fault.Unavailable, len(list), size)
	}
	return list, meta{last: links.IsLastPage(), total: counts.Total}, nil
}

// pages reads a list page by page.
func pages[T any](c *Cloud, l listOf) api.Pages[T] {
	return func(ctx context.Context, number int) ([]T, bool, error) {
		list, m, err := readPage[T](ctx, c, l, number)
		return list, m.last, err
	}
}

// routes are the paths with their ids, for metrics.
var routes = []struct {
	pattern  *regexp.Regexp
	template string
}{
	{regexp.MustCompile(`/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "/{id}"},
	{regexp.MustCompile(`/v2/tags/[^/]+`), "/v2/tags/{id}"},
	{regexp.MustCompile(`/[0-9]+`), "/{id}"},
}

// routeOf names the route of a path.
func routeOf(path string) string {
	for _, r := range routes {
		path = r.pattern.ReplaceAllString(path, r.template)
	}
	return strings.TrimSuffix(path, "/")
}
