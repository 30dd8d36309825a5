package digitalocean

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
)

// statusErrored is the status of a failed action; the SDK has constants for the others.
const statusErrored = "errored"

// tracker follows actions. It reads one action by its id; for several it reads a page with the account's newest actions, and those that the
// page lacks by their ids. It does not use a volume's list of actions, which is gone with the volume.
type tracker struct{ c *Cloud }

var _ ops.Lister = tracker{}

// List reads the account's newest actions.
func (t tracker) List(ctx context.Context, _ []ops.Operation, found map[string]ops.Outcome) error {
	acts, _, err := readPage(ctx, listOf[action]{doing: "read the newest actions", key: "actions", priority: budget.Track, call: t.c.sdk.Actions.List}, 1, perPage)
	for _, act := range acts {
		found[strconv.Itoa(act.ID)] = outcomeOf(act)
	}
	return err
}

// Outcome reads an action.
func (t tracker) Outcome(ctx context.Context, op ops.Operation) (ops.Outcome, error) {
	is := map[string]string{"action.id": op.ID}
	act, err := one(ctx, api.Call{Doing: "read action " + op.ID, Priority: budget.Track, Is: is}, func(ctx context.Context) (*action, *godo.Response, error) {
		id, _ := strconv.Atoi(op.ID) // it was an action's
		return t.c.sdk.Actions.Get(ctx, id)
	})
	if err != nil {
		return ops.Outcome{}, err
	}
	return outcomeOf(*act), nil
}

func outcomeOf(act action) ops.Outcome {
	switch act.Status {
	case godo.ActionCompleted:
		return ops.Outcome{Done: true}
	case statusErrored:
		return ops.Outcome{Done: true, Err: fmt.Errorf("action %d: the cloud reports that it failed and not why; it is sent again with the "+
			"next attempt, and if that goes on, check the droplet's state in the control panel or ask the cloud's support with the action's number", act.ID)}
	default:
		return ops.Outcome{}
	}
}

// Running returns the running actions of a volume.
//
// The list has all actions of the volume, in an order that is not documented. A volume has one action at a time, so the newest page, which
// is the first or the last, shows the running one. A page that is in no order counts too.
func (t tracker) Running(ctx context.Context, object string) ([]ops.Operation, error) {
	l := listOf[action]{
		doing: "read the actions of " + object, key: "actions", priority: budget.Read,
		call: func(ctx context.Context, opt *godo.ListOptions) ([]action, *godo.Response, error) {
			return t.c.sdk.StorageActions.List(ctx, strings.TrimPrefix(object, "volume "), opt)
		},
	}
	acts, m, err := readPage(ctx, l, 1, perPage)
	if err == nil && !m.last && !newestFirst(acts) {
		var last []action
		last, _, err = readPage(ctx, l, (m.total+perPage-1)/perPage, perPage)
		acts = append(acts, last...)
	}
	if api.NotFound(err) {
		return nil, nil // there is no such volume
	}
	var running []ops.Operation
	for _, act := range acts {
		if act.Status == godo.ActionInProgress {
			running = append(running, ops.Operation{Object: object, ID: strconv.Itoa(act.ID)})
		}
	}
	return running, err
}

// newestFirst reports whether a page of actions is ordered from new to old, that is with descending ids.
func newestFirst(list []action) bool {
	return len(list) > 1 && slices.IsSortedFunc(list, func(a, b action) int { return b.ID - a.ID })
}

// nameOf returns the name of a volume, from the cache or by a shared read. fault.NotFound if there is no such volume.
func (c *Cloud) nameOf(ctx context.Context, id cloud.VolumeID) (string, error) {
	if name, known := c.names.Get(id); known {
		return name, nil
	}
	vol, err := c.Get(ctx, id)
	if err != nil {
		return "", err
	}
	return vol.Name, nil
}
