package linode

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// volume is the SDK's type, like all objects of the API. The SDK makes the requests, over the transport of package api.
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

// volumesPath is the path of creates and lists, which the cloud counts separately.
const volumesPath = "/v4/volumes"

// newSDK returns the SDK over a transport, with its environment variables, retries and cache switched off.
func newSDK(transport http.RoundTripper) *linodego.Client {
	sdk := linodego.NewClient(&http.Client{Transport: transport})
	sdk.SetBaseURL(defaultEndpoint).SetAPIVersion(linodego.APIVersion).SetDebug(false)
	sdk.SetRetryCount(0)
	sdk.UseCache(false)
	return &sdk
}

// locks reads the locks of a volume. Only a beta version of the API shows them, for which the SDK has no call.
func (c *Cloud) locks(ctx context.Context, id cloud.VolumeID) ([]string, error) {
	return api.Through(ctx, api.Call{Priority: budget.Read, Is: map[string]string{"id": string(id)}}, func(ctx context.Context) ([]string, error) {
		var root struct {
			Locks []string `json:"locks"`
		}
		_, err := c.sdk.R(ctx).SetResult(&root).Get(defaultEndpoint + "/v4beta/volumes/" + string(id))
		return root.Locks, err
	})
}

// sendVolume sends a change whose answer is the volume.
func (c *Cloud) sendVolume(ctx context.Context, w *ops.Write, call func(context.Context) (*volume, error)) (*volume, error) {
	v, err := api.Through(ctx, api.Call{Write: w, Has: []string{"id"}}, call)
	if err != nil {
		return nil, err
	}
	c.labels.Put(v.ID, v.Label)
	return v, nil
}

// update changes the label and the tags of a volume.
func (c *Cloud) update(ctx context.Context, w *ops.Write, id int, opts linodego.VolumeUpdateOptions) (*volume, error) {
	return c.sendVolume(ctx, w, func(ctx context.Context) (*volume, error) { return c.sdk.UpdateVolume(ctx, id, opts) })
}

// sendEmpty sends a change whose success is an empty object.
func sendEmpty(ctx context.Context, w *ops.Write, call func(context.Context) error) error {
	_, err := api.Through(ctx, api.Call{Write: w, Empty: true}, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
	return err
}

// listOf describes a list.
type listOf[T any] struct {
	doing    string
	call     func(ctx context.Context, opts *linodego.ListOptions) ([]T, error)
	filter   map[string]any
	priority budget.Priority
	received *http.Header // as api.Request.Received
}

// readPage reads one page. A page without its list proves nothing, and is an error.
func readPage[T any](ctx context.Context, l listOf[T], number, size int) (list []T, last bool, err error) {
	opts := linodego.NewListOptions(number, "")
	opts.PageSize = size
	if l.filter != nil {
		text, err := json.Marshal(l.filter)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w: %w", l.doing, fault.InvalidArgument, err)
		}
		opts.Filter = string(text)
	}
	call := api.Call{Doing: l.doing, Priority: l.priority, Has: []string{"data"}, Is: map[string]string{"page": strconv.Itoa(number)}, Received: l.received}
	list, err = api.Through(ctx, call, func(ctx context.Context) ([]T, error) { return l.call(ctx, opts) })
	if err == nil && (opts.Pages < number || len(list) > size) {
		err = fmt.Errorf("%s: %w: the answer is not page %d of a list", l.doing, fault.Unavailable, number)
	}
	return list, number == opts.Pages, err
}

// pages reads a list page by page.
func pages[T any](l listOf[T]) api.Pages[T] {
	return api.Pages[T]{Largest: perPage, Read: func(ctx context.Context, number, size int) ([]T, bool, error) {
		list, last, err := readPage(ctx, l, number, size)
		if number > 1 && api.NotFound(err) { // the list has become shorter
			return nil, true, nil
		}
		return list, last, err
	}}
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

// routes match paths with ids, for metrics.
var routes = regexp.MustCompile(`/[0-9]+`)

// routeOf returns the route of a path.
func routeOf(path string) string {
	return strings.TrimSuffix(routes.ReplaceAllString(path, "/{id}"), "/")
}

// refusalOf parses the body of a refusal: {"errors":[{"reason":..,"field":..}]}.
func refusalOf(body []byte) (said api.Answer, ok bool) {
	var root struct {
		Errors []struct{ Reason, Field string }
	}
	if json.Unmarshal(body, &root) != nil {
		return api.Answer{}, false
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
