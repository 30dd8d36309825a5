package linode

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// volume is the SDK's, as all objects of the API are. The SDK's calls are not used: they lose the errors of the
// transport in texts, and take an error without words for a success.
type volume = linodego.Volume

// The states of a volume. The SDK names some of them.
const (
	statusCreating = linodego.VolumeCreating
	statusActive   = linodego.VolumeActive
	statusResizing = linodego.VolumeResizing
	statusBroken   = linodego.VolumeContactSupport
	statusRotating = linodego.VolumeStatus("key_rotating")
	statusDeleting = linodego.VolumeStatus("deleting")
	statusDeleted  = linodego.VolumeStatus("deleted")
)

const (
	volumesPath   = "/v4/volumes"
	instancesPath = "/v4/linode/instances"
	regionsPath   = "/v4/regions"
	eventsPath    = "/v4/account/events"
	// betaVolumesPath shows the locks of volumes, which v4 does not.
	betaVolumesPath = "/v4beta/volumes"
)

func pathOf(collection string, id int) string { return collection + "/" + strconv.Itoa(id) }

func get(doing, path string, p budget.Priority) api.Request {
	return api.Request{Doing: doing, Method: http.MethodGet, Path: path, Priority: p}
}

// sendVolume sends a request that is answered with a volume.
func (c *Cloud) sendVolume(ctx context.Context, w *ops.Write, method, path string, body any) (*volume, error) {
	var vol volume
	err := c.api.Do(ctx, api.Request{Method: method, Path: path, Body: body, Write: w}, &vol)
	switch {
	case err != nil:
		return nil, err
	case vol.ID <= 0:
		return nil, fmt.Errorf("%w: the cloud's answer names no volume", fault.Uncertain)
	}
	c.seen.put(&vol)
	return &vol, nil
}

// sendEmpty sends a request that is answered with an empty object, and with nothing else where it succeeds.
func (c *Cloud) sendEmpty(ctx context.Context, w *ops.Write, method, path string) error {
	var root map[string]json.RawMessage
	err := c.api.Do(ctx, api.Request{Method: method, Path: path, Write: w}, &root)
	if err == nil && (root == nil || len(root) > 0) {
		return fmt.Errorf("%w: the cloud's answer is not the empty object that says that it was done", fault.Uncertain)
	}
	return err
}

// listOf says which list is read.
type listOf struct {
	doing, path string
	filter      map[string]any
	perPage     int // 0: as many as the cloud allows
	priority    budget.Priority
	received    *http.Header // as api.Request.Received
}

// readPage reads one page. A page without its list proves nothing, and is an error.
func readPage[T any](ctx context.Context, c *Cloud, l listOf, number int) (list []T, last bool, err error) {
	r := get(l.doing, l.path, l.priority)
	r.Received = l.received
	size := l.perPage
	if size == 0 {
		size = perPage
	}
	r.Query = url.Values{"page": {strconv.Itoa(number)}, "page_size": {strconv.Itoa(size)}}
	if l.filter != nil {
		text, err := json.Marshal(l.filter)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w: %w", l.doing, fault.InvalidArgument, err)
		}
		r.Filter = string(text)
	}
	var root struct {
		Data        []T `json:"data"`
		Page, Pages int
	}
	if err := c.api.Do(ctx, r, &root); err != nil {
		return nil, false, err
	}
	if root.Data == nil || root.Page != number || root.Pages < number || len(root.Data) > size {
		return nil, false, fmt.Errorf("%s: %w: the answer is not page %d of a list", l.doing, fault.Unavailable, number)
	}
	return root.Data, number == root.Pages, nil
}

// pages reads a list page by page.
func pages[T any](c *Cloud, l listOf) api.Pages[T] {
	return func(ctx context.Context, number int) ([]T, bool, error) { return readPage[T](ctx, c, l, number) }
}

// class returns the budget that the cloud counts a request in: creates of volumes, lists, or all others.
func (c *Cloud) class(r api.Request) *budget.Governor {
	template := routeOf(r.Path)
	switch {
	case r.Method == http.MethodPost && template == volumesPath:
		return c.creates
	case r.Method == http.MethodGet && !strings.HasSuffix(template, "/{id}"):
		return c.lists
	default:
		return c.others
	}
}

// routes are the paths with their ids, for metrics.
var routes = regexp.MustCompile(`/[0-9]+`)

// routeOf names the route of a path.
func routeOf(path string) string {
	return strings.TrimSuffix(routes.ReplaceAllString(path, "/{id}"), "/")
}

// refusalOf reads the body of a refusal: {"errors":[{"reason":..,"field":..}]}.
func refusalOf(body []byte) (said api.Refusal, ok bool) {
	var root struct {
		Errors []struct{ Reason, Field string }
	}
	if json.Unmarshal(body, &root) != nil {
		return api.Refusal{}, false
	}
	var words []string
	for _, e := range root.Errors {
		text := e.Reason
		if e.Field != "" {
			said.Fields = append(said.Fields, e.Field)
			text = e.Field + ": " + text
		}
		words = append(words, text)
	}
	said.Words = strings.Join(words, "; ")
	return said, root.Errors != nil
}

// statusNotFound reports whether the API says that something does not exist.
func statusNotFound(err error) bool {
	a := api.AnswerOf(err)
	return a != nil && a.Status == http.StatusNotFound
}
