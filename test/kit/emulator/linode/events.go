package linode

import (
	"slices"
	"strconv"
	"time"
)

// event is an operation as the API tells of it.
type event struct {
	Operation
	id       int
	accepted time.Time // by the account's clock, as ended
	ended    time.Time
}

const firstEvent = 500_001

// noteEvent makes an operation that was accepted an event; number is the operation's.
func (c *Cloud) noteEvent(number int, op Operation) {
	c.events[number] = event{Operation: op, id: firstEvent + number, accepted: c.clock.Now()}
}

func (c *Cloud) endEvent(number int, status string) {
	e := c.events[number]
	e.Status, e.ended = status, c.clock.Now()
	c.events[number] = e
}

// status is one of those that the API has.
func (e event) status() string {
	if e.Status == canceled {
		return failed
	}
	return e.Status
}

// listEvents answers with the newest first, as the real API does.
func (c *Cloud) listEvents(r *request) answer {
	keep, field := filter(r, "action", "entity.id", "entity.type")
	if field != "" {
		return c.refuseFilter(field)
	}
	var found []event
	for _, e := range c.events {
		if keep(values{"action": {e.Kind}, "entity.id": {strconv.Itoa(e.Volume)}, "entity.type": {"volume"}}) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b event) int { return b.id - a.id })
	return page(c, r, found, c.showEvent)
}

func (c *Cloud) showEvent(e event) any {
	shown := map[string]any{
		"id": e.id, "action": e.Kind, "status": e.status(), "created": stamp(e.accepted), "percent_complete": 0, "message": "",
		"duration": 0.0, "time_remaining": nil, "read": false, "seen": false, "username": "emulator",
		"rate": nil, "details": struct{}{}, "secondary_entity": nil,
		"entity": eventEntity("volume", e.Volume, e.Label, "/v4/volumes/"),
	}
	if !e.ended.IsZero() {
		shown["percent_complete"], shown["duration"] = 100, e.ended.Sub(e.accepted).Seconds()
	}
	if e.status() == failed {
		shown["message"] = "The operation did not come to its end." // assumed
	}
	if e.Linode != 0 {
		linode := eventEntity("linode", e.Linode, c.now.linodes[e.Linode].Label, "/v4/linode/instances/")
		linode["id"] = strconv.Itoa(e.Linode) // a text here, a number in entity
		shown["secondary_entity"] = linode
	}
	return shown
}

func eventEntity(kind string, id int, label, below string) map[string]any {
	return map[string]any{"id": id, "type": kind, "label": label, "url": below + strconv.Itoa(id)}
}
