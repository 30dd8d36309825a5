package digitalocean

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/disks"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

var (
	volumeName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)
	tagName    = regexp.MustCompile(`^[a-zA-Z0-9_:-]{1,255}$`)
)

const (
	largestVolume = 16384
	gib           = 1 << 30
)

// disk names a volume's data as the real cloud names the device.
func disk(v volume) disks.Disk {
	return disks.Disk{ID: v.ID, Device: "scsi-0DO_Volume_" + v.Name, Size: int64(v.SizeGiB) * gib}
}

// createRequest has the fields that the drivers send; empty texts and null mean the same as no field.
type createRequest struct {
	Name          string   `json:"name"`
	SizeGigabytes int      `json:"size_gigabytes"`
	Region        string   `json:"region"`
	Description   string   `json:"description"`
	SnapshotID    string   `json:"snapshot_id"`
	Tags          []string `json:"tags"`
}

func (c *Cloud) createVolume(r *request) answer {
	var ask createRequest
	if err := json.Unmarshal(r.Body, &ask); err != nil {
		return refuse(badRequestBody, r.ID)
	}
	v := volume{Volume: Volume{
		Name: ask.Name, Region: ask.Region, Description: ask.Description, SizeGiB: ask.SizeGigabytes, Tags: ask.Tags,
		SnapshotID: ask.SnapshotID,
	}}
	if why := c.mayCreate(&v); why != nil {
		return refuse(*why, r.ID)
	}
	v.Content = c.now.snapshots[v.SnapshotID].Content
	v.ID = c.dice.UUID("volume", v.Name)
	if err := c.addVolume(v); err != nil {
		return refuse(problem{Status: http.StatusInternalServerError, Message: err.Error()}, r.ID)
	}
	shown := c.showVolume(c.now.volumes[v.ID])
	wait := c.dice.Lasting("create_volume", v.Name, c.lasts.CreateVolume, r.Effect)
	return c.synchronous(reply(http.StatusCreated, map[string]any{"volume": shown}, r.ID), wait,
		Operation{Kind: "create_volume", Volume: v.ID, VolumeName: v.Name})
}

// mayCreate says why a volume cannot be made, and sets the size of one that is made from a snapshot.
func (c *Cloud) mayCreate(v *volume) *problem {
	features, known := c.opts.Regions[v.Region]
	switch {
	case len(v.Tags) > 0 && !c.may(scopeCreateTags):
		return &unscoped
	case !volumeName.MatchString(v.Name):
		return &badVolumeName
	case !known:
		return &unknownRegion
	case !slices.Contains(features, "storage"):
		return &noStorage
	case v.SizeGiB < 1 && v.SnapshotID == "" || v.SizeGiB > largestVolume || v.SizeGiB < 0:
		return &badVolumeSize
	case slices.ContainsFunc(v.Tags, func(tag string) bool { return !tagName.MatchString(tag) }):
		return &badTag
	}
	if v.SnapshotID != "" {
		source, found := c.now.snapshots[v.SnapshotID]
		switch {
		case !found:
			return &notFound
		case source.Region != v.Region:
			return &snapshotRegion
		case !c.rules.RestoreHonoursSize || v.SizeGiB == 0:
			v.SizeGiB = source.SizeGiB
		case v.SizeGiB < source.SizeGiB:
			return &badVolumeSize
		}
	}
	if len(c.named(v.Name, v.Region)) > 0 {
		return &volumeNameTaken
	}
	return c.mayGrow(v.SizeGiB, 1)
}

// mayGrow says why the account cannot have so many more GiB in so many more volumes.
func (c *Cloud) mayGrow(gib, volumes int) *problem {
	used := 0
	for _, v := range c.now.volumes {
		used += v.SizeGiB
	}
	overCount := volumes > 0 && c.rules.VolumeLimit > 0 && len(c.now.volumes)+volumes > c.rules.VolumeLimit
	overSize := c.rules.CapacityLimit > 0 && used+gib > c.rules.CapacityLimit
	if overCount || overSize {
		return &capacityExceeded
	}
	return nil
}

// addVolume makes a volume that may be made, with its data.
func (c *Cloud) addVolume(v volume) error {
	if err := c.disks.Create(disk(v), v.SnapshotID); err != nil {
		return err
	}
	c.numbers++
	v.number, v.Created = c.numbers, c.clock.Now()
	v.Tags = slices.Clone(v.Tags)
	for _, tag := range v.Tags {
		c.now.tags[tag] = true
	}
	c.putVolume(v)
	return nil
}

func (c *Cloud) named(name, region string) []volume {
	return c.now.volumeList(func(v volume) bool { return v.Name == name && v.Region == region })
}

func (c *Cloud) listVolumes(r *request) answer {
	name := r.URL.Query().Get("name")
	found := c.view(r.Effect).volumeList(func(v volume) bool { return name == "" || v.Name == name })
	return page(r, "volumes", found, c.showVolume)
}

func (c *Cloud) getVolume(r *request) answer {
	v, found := c.view(r.Effect).volumes[r.PathValue("volume_id")]
	if !found {
		return refuse(notFound, r.ID)
	}
	return reply(http.StatusOK, map[string]any{"volume": c.showVolume(v)}, r.ID)
}

func (c *Cloud) deleteVolume(r *request) answer {
	v, found := c.now.volumes[r.PathValue("volume_id")]
	if !found {
		return refuse(notFound, r.ID)
	}
	if v.DropletID != 0 || c.pending(func(a *action) bool { return a.volume == v.ID }) {
		return refuse(volumeAttached, r.ID)
	}
	c.trouble(v, c.disks.Remove(disk(v)))
	c.removeVolume(v.ID)
	wait := c.dice.Lasting("delete_volume", v.Name, c.lasts.DeleteVolume, r.Effect)
	return c.synchronous(reply(http.StatusNoContent, nil, r.ID), wait,
		Operation{Kind: "delete_volume", Volume: v.ID, VolumeName: v.Name})
}

// synchronous records an operation that is over when its answer leaves.
func (c *Cloud) synchronous(a rest.Answer, wait time.Duration, op Operation) rest.Answer {
	done := c.begin(op)
	a.Wait, a.Sent = wait, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.end(done, statusCompleted)
	}
	return a
}
