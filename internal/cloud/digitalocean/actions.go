package digitalocean

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The kinds of actions that are waited for.
const (
	kindAttach poll.Kind = "attach"
	kindDetach poll.Kind = "detach"
	kindResize poll.Kind = "resize"
)

// What the cloud calls the states of an action, and its type of an attach.
const (
	statusRunning   = godo.ActionInProgress
	statusCompleted = godo.ActionCompleted
	statusErrored   = "errored"
)

// actionKey names one action. It is asked for by its id alone, because a volume that is gone takes its
// own list of actions with it.
type actionKey int

// An action is a change that the cloud has taken on.
type action struct {
	key   actionKey
	kind  poll.Kind
	began time.Time // zero: found running
}

// postAction sends one of a volume's actions. The SDK's own calls are not used for it: its resize counts
// in int, and all three would be the same four lines.
func (c *Cloud) postAction(ctx context.Context, id cloud.VolumeID, kind poll.Kind, body map[string]any) (action, error) {
	act := action{kind: kind}
	doing := fmt.Sprintf("%s volume %s", kind, id)
	err := c.write(ctx, volumeKey(id), doing, func(ctx context.Context) error {
		body["type"] = string(kind)
		req, err := c.api.NewRequest(ctx, http.MethodPost, "v2/volumes/"+string(id)+"/actions", body)
		if err != nil {
			return fmt.Errorf("%w: %w", fault.Unavailable, err)
		}
		var root struct {
			Action godo.Action `json:"action"`
		}
		if _, err := c.api.Do(ctx, req, &root); err != nil {
			return err
		}
		if root.Action.ID == 0 {
			return fmt.Errorf("%w: the cloud's answer names no action", fault.Uncertain)
		}
		act.key, act.began = actionKey(root.Action.ID), time.Now()
		return nil
	})
	if err != nil {
		return action{}, err // the request may still be under way and write to act
	}
	return act, nil
}

// await returns when the action has ended in success. A failed action has changed nothing that is known
// of, so the next call may send it again.
func (c *Cloud) await(ctx context.Context, act action) error {
	op := poll.Operation[actionKey]{Key: act.key, Kind: act.kind, Began: act.began}
	_, err := c.actions.Wait(ctx, op, func(status string) (bool, error) {
		switch status {
		case statusCompleted:
			return true, nil
		case statusErrored:
			return false, fmt.Errorf("%w: %w", fault.Unavailable, errErrored)
		default:
			return false, nil
		}
	})
	if err != nil {
		return fmt.Errorf("action %d (%s): %w", act.key, act.kind, err)
	}
	return nil
}

// errErrored is an action that the cloud gave up. It never says why.
const errErrored = actionErrored("the cloud reports that it failed and not why; it is sent again with the next attempt, " +
	"and if that goes on, look at the droplet's state in the control panel or ask the cloud's support with the action's number")

type actionErrored string

// Error returns the words.
func (e actionErrored) Error() string { return string(e) }

// lookPriority is that of looks at actions. Until an action is seen to have ended its machine is held,
// also for a detach that waits for its turn; and one look answers everybody.
const lookPriority = budget.Detach

// actionStatus looks at one action.
func (c *Cloud) actionStatus(ctx context.Context, key actionKey) (string, error) {
	act, _, err := c.api.Actions.Get(budget.WithPriority(ctx, lookPriority), int(key))
	switch {
	case err != nil:
		return "", readError(fmt.Sprintf("look at action %d", key), err)
	case act == nil || act.ID != int(key):
		return "", fmt.Errorf("look at action %d: %w: the answer is not about it", key, fault.Unavailable)
	}
	return act.Status, nil
}

// recentActions looks at the newest actions of the account, which are those that anybody waits for. One
// that the page lacks is looked at by itself.
func (c *Cloud) recentActions(ctx context.Context, _ []actionKey) (map[actionKey]string, error) {
	list, _, err := c.api.Actions.List(budget.WithPriority(ctx, lookPriority), &godo.ListOptions{Page: 1, PerPage: perPage})
	if err != nil {
		return nil, readError("look at the newest actions", err)
	}
	all := make(map[actionKey]string, len(list))
	for _, act := range list {
		all[actionKey(act.ID)] = act.Status
	}
	return all, nil
}

// runningOn returns the actions of a volume that have not ended. A volume that does not exist has none.
//
// The list holds all that ever happened to the volume. A volume has one action at a time, so where a page
// shows that the newest come first, nothing behind it is running.
func (c *Cloud) runningOn(ctx context.Context, id cloud.VolumeID) (acts []action, err error) {
	ctx = budget.WithPriority(ctx, budget.Read)
	pages := paged(func(ctx context.Context, opts *godo.ListOptions) ([]godo.Action, *godo.Response, error) {
		return c.api.StorageActions.List(ctx, string(id), opts)
	})
	err = remote.Pages[godo.Action](func(ctx context.Context, number int) ([]godo.Action, bool, error) {
		list, last, err := pages(ctx, number)
		return list, last || err == nil && newestFirst(list), err
	}).Each(ctx, func(list []godo.Action) {
		for _, act := range list {
			if act.Status == statusRunning {
				acts = append(acts, action{key: actionKey(act.ID), kind: kindOfType(act.Type)})
			}
		}
	})
	if a := answerOf(err); a != nil && a.Status == http.StatusNotFound {
		return nil, nil
	}
	return acts, readError(fmt.Sprintf("look at the actions of volume %s", id), err)
}

// newestFirst reports whether a page of actions, which are numbered as they begin, goes back in time.
func newestFirst(list []godo.Action) bool {
	older := func(a, b godo.Action) int { return b.ID - a.ID }
	return len(list) > 1 && list[0].ID != list[len(list)-1].ID && slices.IsSortedFunc(list, older)
}

// kindOfType reads the type of an action, such as "attach_volume".
func kindOfType(name string) poll.Kind {
	for _, kind := range []poll.Kind{kindAttach, kindDetach, kindResize} {
		if len(name) >= len(kind) && name[:len(kind)] == string(kind) {
			return kind
		}
	}
	return "other"
}

// unseen gives the failed wait for an action that was sent its kind. Only an action that is seen to have failed
// has changed nothing; of one that nobody could see to its end, for want of time or of the permission to look,
// the outcome is open.
func unseen(err error) error {
	if err == nil || errors.Is(err, errErrored) || errors.Is(err, fault.Uncertain) {
		return err
	}
	return fmt.Errorf("%w: the action goes on unseen: %w", fault.Uncertain, err)
}

// join waits for what is under way with a volume already, by a call before this one, another controller
// or a person. It reports whether there was anything. How it ended is for a look at the state to say; that it
// has ended is certain when there is no error.
func (c *Cloud) join(ctx context.Context, id cloud.VolumeID) (joined bool, err error) {
	acts, err := c.runningOn(ctx, id)
	if err != nil {
		return false, err
	}
	for _, act := range acts {
		err := c.await(ctx, act)
		if err != nil && !errors.Is(err, errErrored) && fault.Of(err) != fault.NotFound {
			return true, fmt.Errorf("volume %s: wait for what is under way with it: %w", id, err)
		}
	}
	return len(acts) > 0, nil
}

// volume reads one volume, fresh.
func (c *Cloud) volume(ctx context.Context, id cloud.VolumeID) (*godo.Volume, error) {
	return c.read(ctx, id, budget.Read)
}

func (c *Cloud) read(ctx context.Context, id cloud.VolumeID, p budget.Priority) (*godo.Volume, error) {
	vol, _, err := c.api.Storage.GetVolume(budget.WithPriority(ctx, p), string(id))
	switch {
	case err != nil:
		err = readError("look at volume "+string(id), err)
	case vol == nil || vol.ID != string(id):
		err = fmt.Errorf("look at volume %s: %w: the answer is about something else", id, fault.Unavailable)
	default:
		c.known.saw(vol, true)
		return vol, nil
	}
	return nil, err
}

// look is volume with a nil for one that does not exist.
func (c *Cloud) look(ctx context.Context, id cloud.VolumeID) (*godo.Volume, error) {
	vol, err := c.volume(ctx, id)
	if fault.Of(err) == fault.NotFound {
		c.known.forget(id)
		return nil, nil //nolint:nilnil // "there is none" is an answer here, and every caller asks for it
	}
	return vol, err
}
