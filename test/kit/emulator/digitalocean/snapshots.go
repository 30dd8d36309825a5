package digitalocean

import (
	"encoding/json"
	"net/http"
	"slices"
)

type snapshotRequest struct {
	Name string   `json:"name"`
	Tags []string `json:"tags"`
}

func (c *Cloud) createSnapshot(r *request) answer {
	v, found := c.now.volumes[r.PathValue("volume_id")]
	if !found {
		return refuse(notFound, r.ID)
	}
	var ask snapshotRequest
	if err := json.Unmarshal(r.Body, &ask); err != nil {
		return refuse(badRequestBody, r.ID)
	}
	if why := c.maySnapshot(v, ask); why != nil {
		return refuse(*why, r.ID)
	}
	s := snapshot{Snapshot: Snapshot{
		ID: c.dice.UUID("snapshot", ask.Name), Name: ask.Name, Region: v.Region, VolumeID: v.ID, SizeGiB: v.SizeGiB,
		Tags: slices.Clone(ask.Tags), Content: v.Content, Created: c.clock.Now(),
	}}
	if err := c.disks.Snapshot(disk(v), s.ID); err != nil {
		return refuse(problem{Status: http.StatusInternalServerError, Message: err.Error()}, r.ID)
	}
	c.numbers++
	s.number = c.numbers
	for _, tag := range s.Tags {
		c.now.tags[tag] = true
	}
	c.putSnapshot(s)
	wait := c.dice.Lasting("create_snapshot", ask.Name, c.lasts.CreateSnapshot, r.Effect)
	return c.synchronous(reply(http.StatusCreated, map[string]any{"snapshot": c.showSnapshot(s)}, r.ID), wait,
		Operation{Kind: "create_snapshot", Volume: v.ID, VolumeName: v.Name})
}

func (c *Cloud) maySnapshot(v volume, ask snapshotRequest) *problem {
	same := c.now.snapshotList(func(s snapshot) bool { return s.Name == ask.Name })
	ofVolume := c.now.snapshotList(func(s snapshot) bool { return s.VolumeID == v.ID })
	interval := c.rules.SnapshotInterval.Least
	switch {
	case ask.Name == "":
		return &badSnapshotName
	case len(ask.Tags) > 0 && !c.may(scopeCreateTags):
		return &unscoped
	case slices.ContainsFunc(ask.Tags, func(tag string) bool { return !tagName.MatchString(tag) }):
		return &badTag
	case len(same) > 0 && !c.rules.SnapshotNamesRepeat:
		return &snapshotNameTaken
	case c.rules.SnapshotsPerVolume > 0 && len(ofVolume) >= c.rules.SnapshotsPerVolume:
		return &tooManySnapshots
	case interval > 0 && len(ofVolume) > 0 && c.clock.Now().Sub(ofVolume[len(ofVolume)-1].Created) < interval:
		why := snapshotTooSoon(interval)
		return &why
	}
	return nil
}

func (c *Cloud) listVolumeSnapshots(r *request) answer {
	view, id := c.view(r.Effect), r.PathValue("volume_id")
	if _, found := view.volumes[id]; !found {
		return refuse(notFound, r.ID)
	}
	return page(r, "snapshots", view.snapshotList(func(s snapshot) bool { return s.VolumeID == id }), c.showSnapshot)
}

func (c *Cloud) listSnapshots(r *request) answer {
	kind := r.URL.Query().Get("resource_type")
	found := c.view(r.Effect).snapshotList(func(snapshot) bool { return kind == "" || kind == "volume" })
	return page(r, "snapshots", found, c.showSnapshot)
}

func (c *Cloud) getSnapshot(r *request) answer {
	s, found := c.view(r.Effect).snapshots[r.PathValue("snapshot_id")]
	if !found {
		return refuse(notFound, r.ID)
	}
	return reply(http.StatusOK, map[string]any{"snapshot": c.showSnapshot(s)}, r.ID)
}

func (c *Cloud) deleteSnapshot(r *request) answer {
	id := r.PathValue("snapshot_id")
	if _, found := c.now.snapshots[id]; !found {
		return refuse(notFound, r.ID)
	}
	c.trouble(volume{}, c.disks.RemoveSnapshot(id))
	c.removeSnapshot(id)
	return reply(http.StatusNoContent, nil, r.ID)
}
