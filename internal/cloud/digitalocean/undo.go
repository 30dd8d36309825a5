package digitalocean

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// undoTimeout bounds an undo. Its last request may land as much later as an answer is waited for.
	undoTimeout = time.Minute
	// givenUpFor is how long a mark counts, with room for clocks that differ.
	givenUpFor = undoTimeout + answerTimeout + time.Minute
)

// fit makes a volume that was restored as large as asked for: the cloud makes it as large as the
// snapshot's. If that cannot be done for good the volume is removed before that is said.
func (c *Cloud) fit(ctx context.Context, req cloud.CreateVolumeRequest, vol *godo.Volume) (cloud.Volume, error) {
	made := volumeOf(vol)
	if req.Limit > 0 && made.Size > req.Limit {
		err := fmt.Errorf("create volume %q: its source makes it %s, more than the limit %s: %w", req.Name, made.Size, req.Limit, fault.OutOfRange)
		return cloud.Volume{}, c.remove(ctx, made.ID, err) // no controller can have found a use for it
	}
	if made.Size >= req.Size {
		return made, nil
	}
	exp, err := c.ExpandVolume(ctx, made.ID, req.Size)
	switch {
	case err == nil:
		made.Size = exp.Size
		return made, nil
	case fault.Of(err) == fault.Exhausted:
		return cloud.Volume{}, c.undo(ctx, made.ID, gib(req.Size), err)
	default:
		return cloud.Volume{}, fmt.Errorf("volume %s exists and has %s so far: %w: %w", made.ID, made.Size, fault.Uncertain, err)
	}
}

// undo removes a half-made volume whose growth the cloud refused for good, and returns why.
//
// Another controller that is asked the same may have found the volume by its name, grown it, and be about
// to hand it out. So each of the two first does what the other looks for and then looks itself: this one
// marks the volume and looks whether it has grown, the other one grows it and looks for a mark
// (hasGrown). Whatever the order, at least one of them sees the other, and a volume that was handed out is
// never removed. A mark that its maker left behind counts until its removal cannot land any more.
func (c *Cloud) undo(ctx context.Context, id cloud.VolumeID, want int64, why error) error {
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
	mark := tagGivenUp + ":" + strconv.FormatInt(time.Now().Unix(), 10)
	if err := c.tag(ctx, id, mark); err != nil && fault.Of(err) != fault.NotFound {
		return fmt.Errorf("%w: volume %s is left: %w: %w", fault.Uncertain, id, err, why)
	}
	vol, err := c.look(ctx, id)
	switch {
	case err != nil:
		return fmt.Errorf("%w: volume %s is left: %w: %w", fault.Uncertain, id, err, why)
	case vol == nil:
		return why
	case vol.SizeGigaBytes >= want:
		return fmt.Errorf("%w: volume %s has grown by another controller meanwhile: %w", fault.Uncertain, id, why)
	default:
		return c.remove(ctx, id, why)
	}
}

// remove deletes what this call has made, by its id, and returns why; fault.Uncertain where that fails.
func (c *Cloud) remove(ctx context.Context, id cloud.VolumeID, why error) error {
	if err := c.DeleteVolume(ctx, id); err != nil {
		return fmt.Errorf("%w: volume %s is left: %w: %w", fault.Uncertain, id, err, why)
	}
	return why
}

// isGivenUp reports whether a controller may be removing the volume.
func isGivenUp(vol *godo.Volume) bool {
	for _, word := range wordsOf(vol.Tags, tagGivenUp) {
		_, since, _ := strings.Cut(word, ":")
		seconds, err := strconv.ParseInt(since, 10, 64)
		if err == nil && time.Since(time.Unix(seconds, 0)) < givenUpFor {
			return true
		}
	}
	return false
}

// unlessGivenUp returns a volume that was found by its name. Old marks are taken off: their maker has
// ended before it removed the volume.
func (c *Cloud) unlessGivenUp(ctx context.Context, vol *godo.Volume) (cloud.Volume, error) {
	marks := wordsOf(vol.Tags, tagGivenUp)
	if isGivenUp(vol) {
		return cloud.Volume{}, fmt.Errorf("volume %s was given up half-made, and its removal may be under way: %w", vol.ID, fault.Unavailable)
	}
	if len(marks) > 0 {
		c.untag(ctx, cloud.VolumeID(vol.ID), marks)
	}
	return volumeOf(vol), nil
}
