package linode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// This file is the only one that calls the SDK. Its errors are not relied on: it loses those of the transport
// and of contexts in texts, has two types for the cloud's, and takes an error whose list of errors is empty
// for a success. What a request came to is written down below it, by the witness.

// volume is what the API shows of a volume.
type volume struct {
	id                    int
	label, region, status string
	gib                   int64
	linode                int // 0: it is free
	// ready: the device is there. told: the answer says so or not; an older API does not.
	ready, told bool
	// link is the base name of the device's link.
	link       string
	tags       []string
	encryption string
	// created and updated are by the cloud's clock, in whole seconds.
	created, updated time.Time
	// asked is when this program asked for it. doubtful: it may be older than what is known.
	asked    time.Time
	doubtful bool
	// until is until when this may decide about a change that the API does not check.
	until time.Time
	// sure is when this program was last told of this volume alone that it is attached where it is. A list may
	// lag behind, so it tells nothing of that kind, but that nothing is known to have changed.
	sure time.Time
}

func volumeFrom(v *linodego.Volume, told bool) *volume {
	vol := &volume{
		id: v.ID, label: v.Label, region: v.Region, status: string(v.Status), gib: int64(v.Size), ready: v.IOReady, told: told,
		tags: v.Tags, encryption: v.Encryption,
	}
	if v.LinodeID != nil {
		vol.linode = *v.LinodeID
	}
	if v.Created != nil {
		vol.created = *v.Created
	}
	if v.Updated != nil {
		vol.updated = *v.Updated
	}
	if v.FilesystemPath != "" {
		vol.link = path.Base(v.FilesystemPath)
	}
	return vol
}

// connect builds the client. Above the token stands the budget, above that the witness, above that the SDK,
// which repeats nothing by itself: what may be repeated is known here and not there.
func (c *Cloud) connect(cfg Config) error {
	all := budget.New(budget.Config{Windows: cfg.Limits, Rand: cfg.Rand, Metrics: cfg.Metrics.Budget})
	class := func(name string, windows []budget.Window) *budget.Governor {
		return budget.New(budget.Config{Name: name, Windows: windows, Rand: cfg.Rand, Metrics: cfg.Metrics.Budget})
	}
	creates, lists, others := class("create", cfg.Classes.Create), class("list", cfg.Classes.List), class("other", cfg.Classes.Other)
	transport := &budget.Transport{
		Base: &remote.Sender{Base: &departures{base: cfg.Transport}, Token: cfg.Token},
		Route: func(r *http.Request) budget.Route {
			route := budget.Route{Template: routeOf(r.URL.Path), Governor: others, Total: all}
			switch {
			case r.Method == http.MethodPost && strings.HasSuffix(route.Template, "/volumes"):
				route.Governor = creates
			case r.Method == http.MethodGet && !strings.HasSuffix(route.Template, "/{id}"):
				route.Governor = lists
			}
			return route
		},
		Metrics: cfg.Metrics.Budget,
	}
	// No http.Client.Timeout: it would count the wait for the budget.
	c.api = linodego.NewClient(&http.Client{Transport: &witness{base: transport}, CheckRedirect: remote.NoRedirect})
	// The SDK reads its address and more from the environment, so everything is said here.
	if _, err := c.api.UseURL(strings.TrimRight(cfg.Endpoint, "/") + "/" + apiVersion); err != nil {
		return fmt.Errorf("endpoint %q: %w: %w", cfg.Endpoint, fault.InvalidArgument, err)
	}
	c.api.SetAPIVersion(apiVersion)
	c.api.SetDebug(false)
	c.api.SetLogger(silent{})
	c.api.SetRetryCount(0)
	c.api.UseCache(false)
	if cfg.UserAgent != "" {
		c.api.SetUserAgent(cfg.UserAgent)
	}
	return nil
}

// silent keeps the SDK from writing logs of its own.
type silent struct{}

// Errorf writes nothing.
func (silent) Errorf(string, ...any) {}

// Warnf writes nothing.
func (silent) Warnf(string, ...any) {}

// Debugf writes nothing.
func (silent) Debugf(string, ...any) {}

// routes are the paths with their ids, for metrics.
var routes = regexp.MustCompile(`/[0-9]+`)

// routeOf names the route of a path.
func routeOf(path string) string {
	return strings.TrimSuffix(routes.ReplaceAllString(path, "/{id}"), "/")
}

// one makes a request that is answered with a volume.
func (c *Cloud) one(ctx context.Context, send func(ctx context.Context) (*linodego.Volume, error)) (*volume, error) {
	var got *linodego.Volume
	t, err := c.ask(ctx, func(ctx context.Context) (err error) {
		got, err = send(ctx)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case got == nil || got.ID <= 0:
		return nil, errors.New("the cloud's answer names no volume")
	}
	v := volumeFrom(got, t.told)
	v.until = t.left.Add(shownFor)
	return v, nil
}

// A listing is one page of a list.
type listing struct {
	number, size int
	filter       map[string]any
}

func (l listing) options() *linodego.ListOptions {
	opts := linodego.NewListOptions(l.number, "")
	opts.PageSize = l.size
	if l.filter != nil {
		text, _ := json.Marshal(l.filter) // texts and numbers cannot fail
		opts.Filter = string(text)
	}
	return opts
}

// listed makes a request that is answered with a page.
func listed[T any](ctx context.Context, c *Cloud, l listing, list func(context.Context, *linodego.ListOptions) ([]T, error)) (page []T, t *testimony, last bool, err error) {
	opts := l.options()
	t, err = c.ask(ctx, func(ctx context.Context) (err error) {
		page, err = list(ctx, opts)
		return err
	})
	if err == nil && opts.Pages < 1 {
		err = errors.New("the cloud's answer is no page")
	}
	return page, t, l.number >= opts.Pages, err
}

// volumePage reads one page of volumes.
func (c *Cloud) volumePage(ctx context.Context, l listing) (all []*volume, last bool, err error) {
	page, t, last, err := listed(ctx, c, l, c.api.ListVolumes)
	if err != nil {
		return nil, false, err
	}
	for i := range page {
		all = append(all, volumeFrom(&page[i], t.told))
	}
	until := t.until(all)
	for _, v := range all {
		v.until = until
	}
	return all, last, nil
}

// until is how long a page of volumes may decide what a look at each of them alone may. Pages can lag behind, but
// the newest change that one shows is no older than what it shows: within a second of the answer's own date, both by
// the cloud's clock and cut to seconds, so what it shows is at most two seconds old. A quiet account's page proves
// nothing, nor would one that put together rows of several ages.
func (t *testimony) until(page []*volume) time.Time {
	var newest time.Time
	for _, v := range page {
		if v.updated.After(newest) {
			newest = v.updated
		}
	}
	if t.date.IsZero() || newest.Before(t.date.Add(-time.Second)) {
		return time.Time{}
	}
	return t.left.Add(provenFor)
}

// order is a create.
type order struct {
	label, region string
	gib           int64
	tags          []string
	encryption    string
}

func (c *Cloud) sendCreate(ctx context.Context, o order) (*volume, error) {
	return c.one(ctx, func(ctx context.Context) (*linodego.Volume, error) {
		return c.api.CreateVolume(ctx, linodego.VolumeCreateOptions{
			Label: o.label, Region: o.region, Size: int(o.gib), Tags: o.tags, Encryption: o.encryption,
		})
	})
}

func (c *Cloud) sendClone(ctx context.Context, source int, label string) (*volume, error) {
	return c.one(ctx, func(ctx context.Context) (*linodego.Volume, error) { return c.api.CloneVolume(ctx, source, label) })
}

func (c *Cloud) sendAttach(ctx context.Context, id, linode int) (*volume, error) {
	return c.one(ctx, func(ctx context.Context) (*linodego.Volume, error) {
		persists := false
		return c.api.AttachVolume(ctx, id, &linodego.VolumeAttachOptions{LinodeID: linode, PersistAcrossBoots: &persists})
	})
}

func (c *Cloud) sendDetach(ctx context.Context, id int) error {
	_, err := c.ask(ctx, func(ctx context.Context) error { return c.api.DetachVolume(ctx, id) })
	return err
}

func (c *Cloud) sendResize(ctx context.Context, id int, gib int64) error {
	_, err := c.ask(ctx, func(ctx context.Context) error { return c.api.ResizeVolume(ctx, id, int(gib)) })
	return err
}

func (c *Cloud) sendDelete(ctx context.Context, id int) error {
	_, err := c.ask(ctx, func(ctx context.Context) error { return c.api.DeleteVolume(ctx, id) })
	return err
}

func (c *Cloud) sendUpdate(ctx context.Context, id int, label string, tags []string) (*volume, error) {
	return c.one(ctx, func(ctx context.Context) (*linodego.Volume, error) {
		return c.api.UpdateVolume(ctx, id, linodego.VolumeUpdateOptions{Label: label, Tags: &tags})
	})
}

func (c *Cloud) getVolume(ctx context.Context, id int) (*volume, error) {
	return c.one(ctx, func(ctx context.Context) (*linodego.Volume, error) { return c.api.GetVolume(ctx, id) })
}

// machine is what the API shows of a Linode, as far as it says why a volume cannot be attached.
type machine struct {
	region, status string
	// used and limit are its places for volumes and local disks together.
	used, limit int
}

// machine reads a Linode and what is in its places.
func (c *Cloud) machine(ctx context.Context, id int) (*machine, error) {
	var l *linodego.Instance
	_, err := c.ask(ctx, func(ctx context.Context) (err error) {
		l, err = c.api.GetInstance(ctx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	if l == nil || l.ID != id || l.Specs == nil {
		return nil, errors.New("the answer is about something else")
	}
	m := &machine{region: l.Region, status: string(l.Status), limit: placesFor(l.Specs.Memory)}
	volumes, _, _, err := listed(ctx, c, listing{number: 1, size: perPage}, func(ctx context.Context, o *linodego.ListOptions) ([]linodego.Volume, error) {
		return c.api.ListInstanceVolumes(ctx, id, o)
	})
	if err != nil {
		return nil, err
	}
	disks, _, _, err := listed(ctx, c, listing{number: 1, size: perPage}, func(ctx context.Context, o *linodego.ListOptions) ([]linodego.InstanceDisk, error) {
		return c.api.ListInstanceDisks(ctx, id, o)
	})
	m.used = len(volumes) + len(disks)
	return m, err
}

// placesFor is how many disks and volumes a Linode with so many MB of memory can have: one for each GiB, at
// least 8 and at most 64.
func placesFor(memory int) int { return min(64, max(8, memory/1024)) }

// events reads the newest events of one action. All else about them is chosen here: of the API's filters only
// that of the action and the order are known to be served for volumes. known is false where events cannot be
// read, since that is a permission of its own. whole: there are no older ones.
func (c *Cloud) events(ctx context.Context, action linodego.EventAction) (page []linodego.Event, whole, known bool, err error) {
	page, _, whole, err = listed(ctx, c, listing{number: 1, size: perPage, filter: map[string]any{
		"action": string(action), "+order_by": "created", "+order": "desc",
	}}, c.api.ListEvents)
	if a := apiErrors.Of(err); a != nil && a.Status/100 == 4 && a.Status != http.StatusTooManyRequests {
		return nil, false, false, nil
	}
	return page, whole, err == nil, err
}

// volumeIn is the volume that an event is about, or 0.
func volumeIn(e *linodego.Event) int {
	if e.Entity == nil || e.Entity.Type != linodego.EntityVolume {
		return 0
	}
	id, _ := e.Entity.ID.(float64)
	return int(id)
}

// longAgo is the age from which no change is under way any more.
const longAgo = time.Hour

// underWay reports whether the cloud is taking a volume off its Linode, or is putting it there, and whether that
// is known. The volume itself does not always show it.
func (c *Cloud) underWay(ctx context.Context, action linodego.EventAction, id int) (underWay, known bool, err error) {
	page, whole, known, err := c.events(ctx, action)
	for i := range page {
		e := &page[i]
		if volumeIn(e) == id && (e.Status == linodego.EventScheduled || e.Status == linodego.EventStarted) {
			return true, true, nil
		}
		whole = whole || e.Created != nil && time.Since(*e.Created) > longAgo
	}
	return false, known && whole, err
}

// attachUnderWay is underWay for an attach.
func (c *Cloud) attachUnderWay(ctx context.Context, id int) (underWay, known bool, err error) {
	return c.underWay(ctx, linodego.ActionVolumeAttach, id)
}

// detachUnderWay is underWay for a detach.
func (c *Cloud) detachUnderWay(ctx context.Context, id int) (underWay, known bool, err error) {
	return c.underWay(ctx, linodego.ActionVolumeDetach, id)
}

// deleted returns the volumes whose deletion has ended lately, as far as that is known.
func (c *Cloud) deleted(ctx context.Context) map[int]bool {
	page, _, _, _ := c.events(ctx, linodego.ActionVolumeDelete) // without an answer each is looked at by itself
	ended := make(map[int]bool, len(page))
	for i := range page {
		if e := &page[i]; e.Status == linodego.EventFinished && e.Action == linodego.ActionVolumeDelete {
			ended[volumeIn(e)] = true
		}
	}
	return ended
}

// place is what a region can do.
type place struct{ volumes, encryption bool }

// The capabilities of a region that matter here, in the API's words.
const (
	hasVolumes    = linodego.CapabilityBlockStorage
	hasEncryption = "Block Storage Encryption"
)

// readRegions reads what the regions can do.
func (c *Cloud) readRegions(ctx context.Context) (map[string]place, error) {
	ctx = budget.WithPriority(ctx, budget.Read)
	all := map[string]place{}
	pages := remote.Pages[linodego.Region](func(ctx context.Context, number int) ([]linodego.Region, bool, error) {
		page, _, last, err := listed(ctx, c, listing{number: number, size: perPage}, c.api.ListRegions)
		return page, last, err
	})
	err := pages.Each(ctx, func(page []linodego.Region) {
		for _, r := range page {
			var p place
			for _, can := range r.Capabilities {
				p.volumes = p.volumes || can == hasVolumes
				p.encryption = p.encryption || can == hasEncryption
			}
			all[r.ID] = p
		}
	})
	if err != nil {
		return nil, apiErrors.Read("look which regions have volumes", err)
	}
	return all, nil
}
