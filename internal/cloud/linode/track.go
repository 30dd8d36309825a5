package linode

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The cloud has no ids of operations. The driver's id of an operation describes the state that the volume is to reach.
const (
	toBeActive = "active" // 45 active 20: with 20 GiB
	toBeAt     = "at"     // 45 at 7: with a device on Linode 7
	toBeFree   = "free"   // 45 free 7: not on Linode 7
	toBeIdle   = "idle"   // 45 idle 0: nothing is under way
)

const (
	// maxLabels bounds a filter, which is sent as a header.
	maxLabels = 100
	// longMove is longer than an attach or a detach usually takes (4 s). For an older one the events are read.
	longMove = 10 * time.Second
)

// operation returns the id of an operation.
func operation(id int, goal string, number int) string {
	return fmt.Sprintf("%d %s %d", id, goal, number)
}

// tracker follows volumes.
type tracker struct{ c *Cloud }

var _ ops.Lister = tracker{}

// List reads the volumes of several operations by their labels.
//
// If the list lacks a volume or shows it as failed, the volume itself is read before that counts.
func (t tracker) List(ctx context.Context, of []ops.Operation, found map[string]ops.Outcome) error {
	byLabel := map[string][]goal{}
	for _, op := range of {
		g := goalOf(op)
		if label, known := t.c.labels.Get(g.volume); known {
			byLabel[label] = append(byLabel[label], g)
		}
	}
	var filters []map[string]any
	for label := range byLabel {
		filters = append(filters, map[string]any{"label": label})
	}
	var late []goal
	for some := range slices.Chunk(filters, maxLabels) {
		rows, _, err := readPage(ctx, listOf[volume]{
			doing: "read several volumes", call: t.c.sdk.ListVolumes, filter: map[string]any{"+or": some}, priority: budget.Track,
		}, 1, perPage)
		if err != nil {
			return err
		}
		for i := range rows {
			for _, g := range byLabel[rows[i].Label] {
				switch out, sure := g.listed(&rows[i]); {
				case sure && g.overdue() && !out.Done:
					late = append(late, g)
				case sure:
					found[g.op.ID] = out
				}
			}
		}
	}
	if len(late) == 0 {
		return nil
	}
	moving, err := t.c.moving(ctx)
	for _, g := range late {
		if err != nil || moving[g.volume] {
			found[g.op.ID] = ops.Outcome{} // it runs on; the others are read by their ids
		}
	}
	return nil
}

// Outcome reads the operation's volume.
func (t tracker) Outcome(ctx context.Context, op ops.Operation) (ops.Outcome, error) {
	g := goalOf(op)
	if g.what == toBeIdle {
		idle, err := t.c.idle(ctx, g.volume, budget.Track)
		if err != nil {
			return ops.Outcome{}, err
		}
		return ops.Outcome{Done: idle}, nil
	}
	overdue := g.overdue()
	v, err := t.c.findVolume(ctx, g.volume, budget.Track)
	if err != nil {
		return ops.Outcome{}, err
	}
	out := g.reached(v)
	if out.Done || !overdue {
		return out, nil
	}
	// A volume may show its attachment until the end of the detach, and after a failed detach for ever.
	moving, err := t.c.moving(ctx)
	if err != nil || moving[g.volume] {
		return ops.Outcome{}, nil //nolint:nilerr // a read that failed is a delay
	}
	if v, err = t.c.findVolume(ctx, g.volume, budget.Track); err != nil {
		return ops.Outcome{}, err
	}
	if out = g.reached(v); !out.Done {
		out = givenUp(v)
	}
	return out, nil
}

// goal is the state that a volume is to reach.
type goal struct {
	op             ops.Operation
	volume, number int
	what           string
}

func goalOf(op ops.Operation) goal {
	g := goal{op: op}
	_, _ = fmt.Sscanf(op.ID, "%d %s %d", &g.volume, &g.what, &g.number) // ids are made by operation
	return g
}

// overdue reports whether an attach or detach takes so long that the events have to be read.
func (g goal) overdue() bool {
	return (g.what == toBeAt || g.what == toBeFree) && !g.op.Began.IsZero() && time.Since(g.op.Began) > longMove
}

// reached returns the outcome by the state of the volume; nil: there is none.
func (g goal) reached(v *volume) ops.Outcome {
	done := ops.Outcome{Done: true}
	switch {
	case g.what == toBeFree && (gone(v) || linodeOf(v) != g.number):
		return done
	case g.what == toBeFree:
		return ops.Outcome{}
	case gone(v): // or a read that is older than a create
		return ops.Outcome{Done: true, Err: fmt.Errorf("there is no volume %d, or it does not show yet: %w", g.volume, fault.Uncertain)}
	case g.what == toBeAt && linodeOf(v) == 0, g.what == toBeActive && v.Status == statusActive && v.Size < g.number:
		return givenUp(v)
	case g.what == toBeAt && linodeOf(v) != g.number:
		return ops.Outcome{Done: true, Err: fmt.Errorf("volume %d was attached to Linode %d meanwhile", v.ID, linodeOf(v))}
	case g.what == toBeActive && v.Status == statusBroken:
		return ops.Outcome{Done: true, Err: &brokenError{v.ID, v.Label}}
	case g.what == toBeAt && v.IOReady, g.what == toBeActive && v.Status == statusActive:
		return done
	}
	return ops.Outcome{}
}

// listed returns the outcome by an entry of a list, as far as that is certain.
func (g goal) listed(v *volume) (out ops.Outcome, sure bool) {
	switch {
	case v.ID != g.volume:
		return ops.Outcome{}, false
	case g.what == toBeIdle:
		return ops.Outcome{}, pending(v)
	}
	out = g.reached(v)
	return out, out.Err == nil
}

// givenUp is the error of an operation that the cloud accepted and that has ended without effect. The cloud never reports the reason.
func givenUp(v *volume) ops.Outcome {
	return ops.Outcome{Done: true, Err: fmt.Errorf("volume %d: the cloud took it on and has not done it; it is sent again with the next attempt, "+
		"and if that goes on, look at the Linode's and the volume's events in the Cloud Manager", v.ID)}
}

// gone reports whether a volume does not exist or is being deleted; the cloud does not undo a deletion.
func gone(v *volume) bool {
	return v == nil || v.Status == statusDeleting || v.Status == statusDeleted
}

// attaching reports whether a volume is attached and shows no device yet.
func attaching(v *volume) bool { return linodeOf(v) != 0 && !v.IOReady }

// pending reports whether a volume is being created or grown.
func pending(v *volume) bool { return v.Status == statusCreating || v.Status == statusResizing }

// linodeOf returns the Linode to which a volume is attached or about to be; 0: none.
func linodeOf(v *volume) int {
	if v.LinodeID == nil {
		return 0
	}
	return *v.LinodeID
}

// Running returns the running operations of a volume.
func (t tracker) Running(ctx context.Context, object string) ([]ops.Operation, error) {
	number, is := strings.CutPrefix(object, "volume ")
	id, err := strconv.Atoi(number)
	if !is || err != nil {
		return nil, nil // a label: nothing is under way with what does not exist
	}
	if idle, err := t.c.idle(ctx, id, budget.Read); idle || err != nil {
		return nil, err
	}
	return []ops.Operation{{Object: object, ID: operation(id, toBeIdle, 0)}}, nil
}

// idle reports whether no operation of a volume is running. Only the events show a detach that the volume's state does not show yet, and
// that an attach has ended which has left the volume without a device, so without them nothing is known of an attached volume.
func (c *Cloud) idle(ctx context.Context, id int, p budget.Priority) (bool, error) {
	v, err := c.findVolume(ctx, id, p)
	switch {
	case err != nil:
		return false, err
	case gone(v):
		return true, nil
	case pending(v) || linodeOf(v) == 0:
		return !pending(v), nil
	}
	moving, err := c.moving(ctx)
	return err == nil && !moving[id], err
}

// moving returns the volumes with a running attach or detach.
func (c *Cloud) moving(ctx context.Context) (map[int]bool, error) {
	// Only the API's filters by action and order are known to work for events of volumes. A running one is missed if 500 others began after it.
	newest, _, err := readPage(ctx, listOf[linodego.Event]{
		doing: "read the events of volumes", call: c.sdk.ListEvents, priority: budget.Track,
		filter: map[string]any{
			"+or":       []map[string]any{{"action": linodego.ActionVolumeAttach}, {"action": linodego.ActionVolumeDetach}},
			"+order_by": "created", "+order": "desc",
		},
	}, 1, perPage)
	switch {
	case fault.Of(err) == fault.Denied:
		return nil, fmt.Errorf("a detach that is under way shows in the events only, which need the scope %s and the permission list_events: %w", eventsScope, err)
	case err != nil:
		return nil, err
	}
	moving := map[int]bool{}
	for i := range newest {
		if e := &newest[i]; !ended(e) {
			moving[volumeIn(e)] = true
		}
	}
	return moving, nil
}

// volumeIn returns the volume of an event, or 0.
func volumeIn(e *linodego.Event) int {
	if e.Entity == nil || e.Entity.Type != linodego.EntityVolume {
		return 0
	}
	id, _ := e.Entity.ID.(float64)
	return int(id)
}

// ended reports whether the operation of an event has ended.
func ended(e *linodego.Event) bool {
	const inProgress = linodego.EventStatus("in_progress") // the SDK does not know it
	return e.Status != linodego.EventScheduled && e.Status != linodego.EventStarted && e.Status != inProgress
}
