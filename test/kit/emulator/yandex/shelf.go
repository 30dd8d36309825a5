package yandex

import (
	"context"
	"slices"
	"strings"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
)

// shelf is how the API shows a kind of things: of each row R a message T.
type shelf[R, T any] struct {
	kind   string
	rows   func(*state) map[string]R
	all    func(*Cloud, *state) []R
	fields func(R) row
	show   func(*Cloud, *state, R) T
}

var diskShelf = shelf[disk, *compute.Disk]{
	kind: "Disk", rows: diskRows, fields: diskRow,
	all: func(c *Cloud, view *state) []disk {
		return view.diskList(func(d disk) bool { return !d.Boot || !c.rules.BootDisksElsewhere })
	},
	show: func(c *Cloud, _ *state, d disk) *compute.Disk { return c.showDisk(d) },
}

var snapshotShelf = shelf[snapshot, *compute.Snapshot]{
	kind: "Snapshot", rows: snapshotRows, fields: snapshotRow,
	all: func(_ *Cloud, view *state) []snapshot {
		return view.snapshotList(func(snapshot) bool { return true })
	},
	show: func(c *Cloud, _ *state, s snapshot) *compute.Snapshot { return c.showSnapshot(s) },
}

var instanceShelf = shelf[Instance, *compute.Instance]{
	kind: "Instance", rows: instanceRows,
	fields: func(i Instance) row { return row{id: i.ID, name: i.Name} },
	show:   (*Cloud).showInstance,
}

// get answers a Get call.
func (s shelf[R, T]) get(ctx context.Context, c *Cloud, id string) (shown T, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	view := c.view(effectOf(ctx))
	found, why := s.find(view, id)
	if why != nil {
		return shown, c.refuse(*why)
	}
	return s.show(c, view, found), nil
}

// list answers a List call.
func (s shelf[R, T]) list(ctx context.Context, c *Cloud, ask interface {
	listed
	GetFolderId() string
}) (shown []T, next string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := c.checkFolder(ask.GetFolderId()); why != nil {
		return nil, "", c.refuse(*why)
	}
	view := c.view(effectOf(ctx))
	page, next, why := listOf(c, s.all(c, view), s.fields, ask)
	if why != nil {
		return nil, "", c.refuse(*why)
	}
	for _, found := range page {
		shown = append(shown, s.show(c, view, found))
	}
	return shown, next, nil
}

// existing returns what an operation may touch: it is there, and in one of the states.
func (s shelf[R, T]) existing(c *Cloud, id string, states ...string) (R, *refusal) {
	found, why := s.find(&c.now, id)
	if why != nil {
		return found, why
	}
	if status := s.fields(found).status; !slices.Contains(states, status) {
		wrong := wrongState.with(s.kind, id, status)
		return found, &wrong
	}
	return found, nil
}

func (s shelf[R, T]) find(view *state, id string) (found R, why *refusal) {
	if malformed := checkID(strings.ToLower(s.kind)+"_id", id); malformed != nil {
		return found, malformed
	}
	found, is := s.rows(view)[id]
	if !is {
		missing := notFound.with(s.kind, id)
		return found, &missing
	}
	return found, nil
}
