package digitalocean

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// statusErrored is an action that the cloud gave up; the SDK names the others.
	statusErrored = "errored"
	// freshAction is how long an action that was answered may be missing (hashicorp/terraform#481).
	freshAction = 10 * time.Second
	// trackPriority is that of reads of actions: until an action is seen to have ended its droplet is held,
	// also for a detach that waits there.
	trackPriority = budget.Detach
)

// tracker follows actions. One action is read by its id; of several the account's newest are read, on one
// page, and by itself what that page lacks. Actions are asked for by id because a volume that is gone takes
// its own list of actions with it.
type tracker struct{ c *Cloud }

// Outcomes reads how actions stand.
func (t tracker) Outcomes(ctx context.Context, of []ops.Operation) (map[string]ops.Outcome, error) {
	found := map[string]ops.Outcome{}
	if len(of) > 1 {
		newest, _, err := readPage(ctx, listOf[action]{doing: "read the newest actions", key: "actions", priority: trackPriority, call: t.c.sdk.Actions.List}, 1, perPage)
		if err != nil { // no list: each by itself, if that works at all
			out, err := t.outcome(ctx, of[0])
			if err != nil {
				return nil, err
			}
			found[of[0].ID] = out
		}
		for _, act := range newest {
			found[strconv.Itoa(act.ID)] = outcomeOf(act)
		}
	}
	return ops.Each(ctx, of, found, t.outcome)
}

// outcome reads one action. An error is about this read, and a later one may succeed.
func (t tracker) outcome(ctx context.Context, op ops.Operation) (ops.Outcome, error) {
	doing := "read action " + op.ID
	id, _ := strconv.Atoi(op.ID) // it was an action's
	act, err := one(ctx, api.Call{Doing: doing, Priority: trackPriority, Has: []string{"action"}}, func(ctx context.Context) (*action, *godo.Response, error) {
		return t.c.sdk.Actions.Get(ctx, id)
	})
	a := api.AnswerOf(err)
	switch {
	case a != nil && a.Status == http.StatusNotFound && time.Since(op.Began) < freshAction:
		return ops.Outcome{}, nil
	case fault.Of(err) == fault.Unavailable:
		return ops.Outcome{}, err
	case err != nil:
		return ops.Outcome{Err: err}, nil
	case act.ID != id:
		return ops.Outcome{}, fmt.Errorf("%s: %w: the answer is about something else", doing, fault.Unavailable)
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

// Running returns the actions of a volume that have not ended.
//
// The list holds all that ever happened to the volume, in an order that is not documented. A volume has one
// action at a time, so the newest page shows what is running: the first one or the last.
func (t tracker) Running(ctx context.Context, object string) ([]ops.Operation, error) {
	l := listOf[action]{
		doing: "read the actions of " + object, key: "actions", priority: budget.Read,
		call: func(ctx context.Context, opt *godo.ListOptions) ([]action, *godo.Response, error) {
			return t.c.sdk.StorageActions.List(ctx, strings.TrimPrefix(object, "volume "), opt)
		},
	}
	acts, m, err := readPage(ctx, l, 1, perPage)
	if err == nil && !m.last && !newestFirst(acts) {
		acts, _, err = readPage(ctx, l, (m.total+perPage-1)/perPage, perPage)
	}
	if a := api.AnswerOf(err); a != nil && a.Status == http.StatusNotFound {
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

// newestFirst reports whether a page of actions, which are numbered as they begin, goes back in time.
func newestFirst(list []action) bool {
	return len(list) > 1 && slices.IsSortedFunc(list, func(a, b action) int { return b.ID - a.ID })
}

// nameOf returns the name of a volume, with a shared read where this process has not read it yet.
// fault.NotFound when there is no such volume.
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
