package digitalocean

import (
	"maps"
	"slices"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
)

// volume, snapshot and action are rows of the account. Rows are replaced, never changed in place, so
// that an older view can keep them.
type volume struct {
	Volume
	number          int // order of creation
	filesystemType  string
	filesystemLabel string
}

type snapshot struct {
	Snapshot
	number int
}

type action struct {
	id        int
	kind      string // as the API names it: attach_volume, detach_volume, resize
	status    string
	volume    string
	droplet   int // 0: of no droplet
	size      int // GiB, of a resize
	region    string
	started   time.Time
	completed time.Time
}

const (
	statusInProgress = "in-progress"
	statusCompleted  = "completed"
	statusErrored    = "errored"
)

// state is all that the API can show.
type state struct {
	volumes   map[string]volume
	snapshots map[string]snapshot
	droplets  map[int]Droplet
	actions   []action // by id, from firstAction
	tags      map[string]bool
}

const firstAction = 1_000_001

func newState() state {
	return state{
		volumes: map[string]volume{}, snapshots: map[string]snapshot{}, droplets: map[int]Droplet{}, tags: map[string]bool{},
	}
}

func (s *state) action(id int) (action, bool) {
	if id < firstAction || id >= firstAction+len(s.actions) {
		return action{}, false
	}
	return s.actions[id-firstAction], true
}

// volumeList returns the volumes that keep says yes to, the oldest first.
func (s *state) volumeList(keep func(volume) bool) []volume {
	var found []volume
	for _, v := range s.volumes {
		if keep(v) {
			found = append(found, v)
		}
	}
	slices.SortFunc(found, func(a, b volume) int { return a.number - b.number })
	return found
}

func (s *state) snapshotList(keep func(snapshot) bool) []snapshot {
	var found []snapshot
	for _, v := range s.snapshots {
		if keep(v) {
			found = append(found, v)
		}
	}
	slices.SortFunc(found, func(a, b snapshot) int { return a.number - b.number })
	return found
}

// actionList returns the actions that keep says yes to, the newest first.
func (s *state) actionList(keep func(action) bool) []action {
	var found []action
	for _, a := range slices.Backward(s.actions) {
		if keep(a) {
			found = append(found, a)
		}
	}
	return found
}

// change is how to undo one change of the state, and when it was made.
type change struct {
	at   time.Time
	undo func(*state)
}

// mostHistory bounds how many changes a stale answer can go back.
const mostHistory = 4096

// changed notes how to undo a change that was just made.
func (c *Cloud) changed(undo func(*state)) {
	if len(c.history) >= mostHistory {
		c.history = append(c.history[:0:0], c.history[mostHistory/2:]...)
	}
	c.history = append(c.history, change{at: c.clock.Now(), undo: undo})
}

func (c *Cloud) putVolume(v volume) {
	old, had := c.now.volumes[v.ID]
	c.now.volumes[v.ID] = v
	c.changed(func(s *state) { restore(s.volumes, v.ID, old, had) })
}

func (c *Cloud) removeVolume(id string) {
	old, had := c.now.volumes[id]
	delete(c.now.volumes, id)
	c.changed(func(s *state) { restore(s.volumes, id, old, had) })
}

func (c *Cloud) putSnapshot(v snapshot) {
	old, had := c.now.snapshots[v.ID]
	c.now.snapshots[v.ID] = v
	c.changed(func(s *state) { restore(s.snapshots, v.ID, old, had) })
}

func (c *Cloud) removeSnapshot(id string) {
	old, had := c.now.snapshots[id]
	delete(c.now.snapshots, id)
	c.changed(func(s *state) { restore(s.snapshots, id, old, had) })
}

// putAction replaces an action, or adds one whose id is the next.
func (c *Cloud) putAction(a action) {
	at := a.id - firstAction
	if at == len(c.now.actions) {
		c.now.actions = append(c.now.actions, a)
		c.changed(func(s *state) { s.actions = s.actions[:at] })
		return
	}
	old := c.now.actions[at]
	c.now.actions[at] = a
	c.changed(func(s *state) { s.actions[at] = old })
}

func restore[K comparable, V any](rows map[K]V, key K, old V, had bool) {
	if had {
		rows[key] = old
	} else {
		delete(rows, key)
	}
}

// view returns the state that a request sees: the present one, or an older one when a fault says so.
func (c *Cloud) view(effect effect) *state {
	age := effect.StaleAge.Pick(0)
	if effect.StaleChanges == 0 && effect.StaleAge == (clock.Span{}) {
		return &c.now
	}
	past := &state{
		volumes: maps.Clone(c.now.volumes), snapshots: maps.Clone(c.now.snapshots), droplets: c.now.droplets,
		actions: slices.Clone(c.now.actions), tags: c.now.tags,
	}
	oldest := c.clock.Now().Add(-age)
	for i, change := range slices.Backward(c.history) {
		byCount := len(c.history)-i <= effect.StaleChanges
		byAge := age > 0 && change.at.After(oldest)
		if !byCount && !byAge {
			break
		}
		change.undo(past)
	}
	return past
}
