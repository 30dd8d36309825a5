package linode

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/disks"
)

const (
	smallestVolume = 10
	largestVolume  = 16384
	usualVolume    = 20
	longestLabel   = 32
)

var labelLetters = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// createRequest has all fields that clients send. A null is the same as no field.
type createRequest struct {
	Label      string   `json:"label"`
	Region     string   `json:"region"`
	Size       *int     `json:"size"`
	Tags       []string `json:"tags"`
	Encryption string   `json:"encryption"`
}

func (c *Cloud) createVolume(r *request) answer {
	var ask createRequest
	if err := json.Unmarshal(r.Body, &ask); err != nil {
		return c.refuse(badJSON)
	}
	v := volume{Volume: Volume{Label: ask.Label, Region: ask.Region, SizeGiB: usualVolume, Tags: ask.Tags}}
	if ask.Size != nil {
		v.SizeGiB = *ask.Size
	}
	if why := c.mayCreate(&v, ask.Encryption); why != nil {
		return c.refuse(*why)
	}
	lasts := c.dice.Lasting(kindCreate, v.Label, c.lasts.Create, r.Effect)
	v, err := c.addVolume(v, nil, lasts)
	if err != nil {
		return c.refuse(refusal{status: broken.status, reason: err.Error()})
	}
	reply := ok(c.showVolume(r, &c.now, v))
	c.start(job{kind: kindCreate, volume: v.ID, errored: r.Effect.Errored, ends: c.created}, lasts)
	return reply
}

// created ends a create or a clone.
func (c *Cloud) created(v volume, failed bool) {
	v.Status = statusActive
	if failed {
		v.Status = statusBroken
	}
	c.putVolume(v)
}

// mayCreate says why a volume cannot be made, and fills in its encryption.
func (c *Cloud) mayCreate(v *volume, encryption string) *refusal {
	if why := c.mayName(v.Label); why != nil {
		return why
	}
	region, known := c.opts.Regions[v.Region]
	encrypts := slices.Contains(region.Capabilities, BlockStorageEncryption)
	switch {
	case v.Region == "":
		return &noRegion
	case !known:
		return &unknownRegion
	case !slices.Contains(region.Capabilities, BlockStorage):
		return &noStorage
	case v.SizeGiB < smallestVolume || v.SizeGiB > largestVolume:
		return &badSize
	case encryption != "" && encryption != "enabled" && encryption != "disabled":
		return &badEncryption
	case encryption == "enabled" && !encrypts:
		return &noEncryption
	case !goodTags(v.Tags):
		return &badTags
	case len(v.Tags) > 0 && c.rules.TagsRefused:
		return &restricted
	}
	v.Encrypted = encryption == "enabled" || encryption == "" && encrypts && !c.rules.PlainByDefault
	return c.mayGrow(v.SizeGiB, 1)
}

// mayName says why a volume cannot have a label.
func (c *Cloud) mayName(label string) *refusal {
	if len(c.now.volumeList(func(v volume) bool { return v.Label == label })) > 0 {
		return &taken
	}
	return checkLabel(label)
}

// checkLabel says why no volume can have a label.
func checkLabel(label string) *refusal {
	switch {
	case label == "":
		return &noLabel
	case len(label) > longestLabel:
		return &longLabel
	case !strings.ContainsAny(strings.ToLower(label[:1]), "abcdefghijklmnopqrstuvwxyz"):
		return &badFirst
	case !labelLetters.MatchString(label) || strings.Contains(label, "--") || strings.Contains(label, "__"):
		return &badLabel
	}
	return nil
}

func goodTags(tags []string) bool {
	return !slices.ContainsFunc(tags, func(tag string) bool { return len(tag) < 3 || len(tag) > 50 })
}

// mayGrow says why the account cannot have so many more GiB in so many more volumes.
func (c *Cloud) mayGrow(gib, volumes int) *refusal {
	used := 0
	for _, v := range c.now.volumes {
		used += v.SizeGiB
	}
	overCount := volumes > 0 && c.rules.VolumeLimit > 0 && len(c.now.volumes)+volumes > c.rules.VolumeLimit
	if overCount || c.rules.CapacityLimit > 0 && used+gib > c.rules.CapacityLimit {
		return &quota
	}
	return nil
}

const firstVolume = 100_001

// addVolume makes a volume that may be made, with its data. It will be ready when lasts has passed.
func (c *Cloud) addVolume(v volume, source *volume, lasts time.Duration) (volume, error) {
	if v.ID == 0 {
		v.ID = firstVolume - 1 + c.dice.Next("volume")
	}
	v.file, v.Status, v.Created = v.Label, statusCreating, c.clock.Now()
	v.ready, v.Tags = v.Created.Add(lasts), slices.Clone(v.Tags)
	if err := c.createData(v, source); err != nil {
		return volume{}, err
	}
	c.putVolume(v)
	return c.now.volumes[v.ID], nil
}

func (c *Cloud) listVolumes(r *request) answer {
	view := c.view(r.Effect)
	keep, field := filter(r, "label")
	if field != "" {
		return c.refuseFilter(field)
	}
	found := view.volumeList(func(v volume) bool { return keep(values{"label": {v.Label}}) })
	return page(c, r, found, func(v volume) any { return c.showVolume(r, view, v) })
}

func (c *Cloud) getVolume(r *request) answer {
	view := c.view(r.Effect)
	v, found := view.volumes[r.PathNumber("volumeId")]
	if !found {
		return c.refuse(notFound)
	}
	return ok(c.showVolume(r, view, v))
}

// with serves a request to change a volume that must be there.
func (c *Cloud) with(serve func(*request, volume) answer) func(*request) answer {
	return func(r *request) answer {
		v, found := c.now.volumes[r.PathNumber("volumeId")]
		if !found {
			return c.refuse(notFound)
		}
		return serve(r, v)
	}
}

func (c *Cloud) updateVolume(r *request, v volume) answer {
	var ask struct {
		Label *string   `json:"label"`
		Tags  *[]string `json:"tags"`
	}
	if err := json.Unmarshal(r.Body, &ask); err != nil {
		return c.refuse(badJSON)
	}
	if ask.Label != nil && *ask.Label != v.Label {
		if why := c.mayName(*ask.Label); why != nil {
			return c.refuse(*why)
		}
		v.Label = *ask.Label
	}
	if ask.Tags != nil {
		switch {
		case !goodTags(*ask.Tags):
			return c.refuse(badTags)
		case len(*ask.Tags) > 0 && c.rules.TagsRefused:
			return c.refuse(restricted)
		}
		v.Tags = slices.Clone(*ask.Tags)
	}
	c.putVolume(v)
	c.end(c.begin(Operation{Kind: kindUpdate, Volume: v.ID, Label: v.Label, Linode: v.Linode}), finished)
	return ok(c.showVolume(r, &c.now, c.now.volumes[v.ID]))
}

func (c *Cloud) deleteVolume(r *request, v volume) answer {
	switch {
	case len(v.Locks) > 0:
		return c.refuse(locked)
	case v.Status == statusRotating:
		return c.refuse(rotating)
	case v.Status == statusDeleting:
		return ok(struct{}{})
	}
	before := v.Status
	switch before { // what is canceled does not go on after a delete that fails
	case statusCreating:
		before = statusBroken
	case statusResizing:
		before = statusActive
	}
	c.cancel(func(j *job) bool { return j.volume == v.ID })
	v.Status = statusDeleting
	c.putVolume(v)
	c.start(job{kind: kindDelete, volume: v.ID, errored: r.Effect.Errored, ends: func(v volume, failed bool) {
		if failed {
			v.Status = before
			c.putVolume(v)
			return
		}
		if v.Linode != 0 {
			c.unplug(v, c.now.linodes[v.Linode], "deleted")
		}
		c.trouble(v, c.disks.Remove(disk(v)))
		c.removeVolume(v.ID)
	}}, c.dice.Lasting(kindDelete, v.Label, c.lasts.Delete, r.Effect))
	return ok(struct{}{})
}

func (c *Cloud) resizeVolume(r *request, v volume) answer {
	var ask struct {
		Size int `json:"size"`
	}
	if err := json.Unmarshal(r.Body, &ask); err != nil {
		return c.refuse(badJSON)
	}
	switch {
	case ask.Size < smallestVolume || ask.Size > largestVolume:
		return c.refuse(badSize)
	case v.Status != statusActive:
		return c.refuse(notActive)
	case ask.Size < v.SizeGiB:
		return c.refuse(shrink)
	case ask.Size == v.SizeGiB && c.rules.ResizeToSameRefused:
		return c.refuse(sameSize)
	}
	if why := c.mayGrow(ask.Size-v.SizeGiB, 0); why != nil {
		return c.refuse(*why)
	}
	before := v.SizeGiB
	v.Status, v.SizeGiB = statusResizing, ask.Size
	c.putVolume(v)
	shown := ok(c.showVolume(r, &c.now, c.now.volumes[v.ID]))
	c.start(job{kind: kindResize, volume: v.ID, errored: r.Effect.Errored, ends: func(v volume, failed bool) {
		v.Status = statusActive
		if failed {
			v.SizeGiB = before
		}
		c.putVolume(v)
	}}, c.dice.Lasting(kindResize, v.Label, c.lasts.Resize, r.Effect))
	return shown
}

func (c *Cloud) cloneVolume(r *request, source volume) answer {
	var ask struct {
		Label string `json:"label"`
	}
	if err := json.Unmarshal(r.Body, &ask); err != nil {
		return c.refuse(badJSON)
	}
	why := c.mayName(ask.Label)
	if why == nil && source.Status != statusActive {
		why = &notActive
	}
	if why == nil {
		why = c.mayGrow(source.SizeGiB, 1)
	}
	if why != nil {
		return c.refuse(*why)
	}
	lasts := c.dice.Lasting(kindClone, ask.Label, c.lasts.Clone, r.Effect)
	made := Volume{Label: ask.Label, Region: source.Region, SizeGiB: source.SizeGiB, Encrypted: source.Encrypted, Content: source.Content}
	if c.rules.CopiesHaveTags {
		made.Tags = source.Tags
	}
	v, err := c.addVolume(volume{Volume: made}, &source, lasts)
	if err != nil {
		return c.refuse(refusal{status: broken.status, reason: err.Error()})
	}
	shown := ok(c.showVolume(r, &c.now, v))
	c.start(job{kind: kindClone, volume: v.ID, errored: r.Effect.Errored, ends: c.created}, lasts)
	return shown
}

const gib = 1 << 30

// device names a volume's device as the real cloud does.
func device(label string) string { return "scsi-0Linode_Volume_" + label }

func disk(v volume) disks.Disk {
	return disks.Disk{ID: strconv.Itoa(v.ID), Device: device(v.file), Size: int64(v.SizeGiB) * gib}
}

// createData makes the data of a new volume, that of its source for a clone.
func (c *Cloud) createData(v volume, source *volume) error {
	if source == nil {
		return c.disks.Create(disk(v), "")
	}
	copied := strconv.Itoa(v.ID)
	if err := c.disks.Snapshot(disk(*source), copied); err != nil {
		return err
	}
	return errors.Join(c.disks.Create(disk(v), copied), c.disks.RemoveSnapshot(copied))
}
