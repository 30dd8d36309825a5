package digitalocean

import (
	"maps"
	"slices"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/history"
)

// volume, snapshot and action are rows of the account. Rows are replaced, never changed in place, so
// that an older view can keep them.
type volume struct {
	Volume
	number int // order of creation
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
	return account.Sorted(s.volumes, keep, func(a, b volume) int { return a.number - b.number })
}

func (s *state) snapshotList(keep func(snapshot) bool) []snapshot {
	return account.Sorted(s.snapshots, keep, func(a, b snapshot) int { return a.number - b.number })
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

func volumeRows(s *state) map[string]volume     { return s.volumes }
func snapshotRows(s *state) map[string]snapshot { return s.snapshots }

func (c *Cloud) putVolume(v volume) {
	history.Put(&c.past, c.clock.Now(), &c.now, volumeRows, v.ID, v)
}

func (c *Cloud) removeVolume(id string) {
	history.Remove(&c.past, c.clock.Now(), &c.now, volumeRows, id)
}

func (c *Cloud) putSnapshot(v snapshot) {
	history.Put(&c.past, c.clock.Now(), &c.now, snapshotRows, v.ID, v)
}

func (c *Cloud) removeSnapshot(id string) {
	history.Remove(&c.past, c.clock.Now(), &c.now, snapshotRows, id)
}

// putAction replaces an action, or adds one whose id is the next.
func (c *Cloud) putAction(a action) {
	at := a.id - firstAction
	if at == len(c.now.actions) {
		c.now.actions = append(c.now.actions, a)
		c.past.Note(c.clock.Now(), func(s *state) { s.actions = s.actions[:at] })
		return
	}
	old := c.now.actions[at]
	c.now.actions[at] = a
	c.past.Note(c.clock.Now(), func(s *state) { s.actions[at] = old })
}

// view returns the state that a request sees: the present one, or an older one when a fault says so.
func (c *Cloud) view(e effect) *state {
	if !history.IsStale(e) {
		return &c.now
	}
	past := &state{
		volumes: maps.Clone(c.now.volumes), snapshots: maps.Clone(c.now.snapshots), droplets: c.now.droplets,
		actions: slices.Clone(c.now.actions), tags: c.now.tags,
	}
	c.past.Rewind(past, c.clock.Now(), e)
	return past
}
