package linode

import (
	"maps"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/history"
)

// volume is a row of the account. Rows are replaced, never changed in place, so that an older view can
// keep them.
type volume struct {
	Volume
	// file is the label under which the data lies: a renamed volume keeps it until its next attach.
	file  string
	ready time.Time // when the create or clone is over
}

const (
	statusCreating = "creating"
	statusActive   = "active"
	statusResizing = "resizing"
	statusDeleting = "deleting"
	statusBroken   = "contact_support"
	statusRotating = "key_rotating"
)

// state is all that the API can show.
type state struct {
	volumes map[int]volume
	linodes map[int]Linode
}

func newState() state { return state{volumes: map[int]volume{}, linodes: map[int]Linode{}} }

// volumeList returns the volumes that keep says yes to, the oldest first.
func (s *state) volumeList(keep func(volume) bool) []volume {
	return account.Sorted(s.volumes, keep, func(a, b volume) int { return a.ID - b.ID })
}

func (s *state) attachedTo(linode int) []volume {
	return s.volumeList(func(v volume) bool { return v.Linode == linode })
}

func volumeRows(s *state) map[int]volume { return s.volumes }
func linodeRows(s *state) map[int]Linode { return s.linodes }

// putVolume replaces a row that an API call can see.
func (c *Cloud) putVolume(v volume) {
	now := c.clock.Now()
	if v.Updated.IsZero() || !c.rules.UpdatedStands {
		v.Updated = now
	}
	history.Put(&c.past, now, &c.now, volumeRows, v.ID, v)
}

func (c *Cloud) removeVolume(id int) {
	history.Remove(&c.past, c.clock.Now(), &c.now, volumeRows, id)
}

func (c *Cloud) putLinode(l Linode) {
	history.Put(&c.past, c.clock.Now(), &c.now, linodeRows, l.ID, l)
}

func (c *Cloud) removeLinode(id int) {
	history.Remove(&c.past, c.clock.Now(), &c.now, linodeRows, id)
}

// view returns the state that a request sees: the present one, or an older one when a fault says so.
func (c *Cloud) view(e effect) *state {
	if !history.IsStale(e) {
		return &c.now
	}
	past := &state{volumes: maps.Clone(c.now.volumes), linodes: maps.Clone(c.now.linodes)}
	c.past.Rewind(past, c.clock.Now(), e)
	return past
}
