package real

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Clean removes the volumes and snapshots whose names begin with prefix, and the copies that a clone of these parts
// has not finished. It goes on after an error, so that one object that cannot go leaves no other one.
func (a Account) Clean(ctx context.Context, c cloud.Cloud, prefix string) (removed []string, err error) {
	prefix = strings.TrimRight(prefix, "-")
	if !strings.HasPrefix(prefix, a.prefix()) || !runWord.MatchString(a.Run) {
		return nil, fmt.Errorf("%q does not begin the names of a run: %w", prefix, fault.InvalidArgument)
	}
	volumes, err := Volumes(ctx, c)
	if err != nil {
		return nil, err
	}
	unfinished := a.unfinished(prefix)
	ours := map[cloud.VolumeID]bool{}
	for _, v := range volumes {
		if a.named(v.Name, prefix) || len(v.Name) > unfinishedLen && unfinished[v.Name[:unfinishedLen]] {
			ours[v.ID] = true
		}
	}
	snapshots, err := Snapshots(ctx, c)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, s := range snapshots {
		// A temporary snapshot has a name of its own, but it is one of a volume of the run.
		if !a.named(s.Name, prefix) && !ours[s.Volume] {
			continue
		}
		removed = append(removed, "snapshot "+s.Name)
		if err := again(ctx, func() error { return c.DeleteSnapshot(ctx, s.ID) }); err != nil {
			failed = append(failed, fmt.Errorf("delete snapshot %s: %w", s.ID, err))
		}
	}
	for _, v := range volumes {
		if !ours[v.ID] {
			continue
		}
		removed = append(removed, "volume "+v.Name)
		if err := again(ctx, func() error { return removeVolume(ctx, c, v) }); err != nil {
			failed = append(failed, fmt.Errorf("delete volume %s: %w", v.ID, err))
		}
	}
	return removed, errors.Join(failed...)
}

// named reports whether a name begins with prefix and is one that a part of the run gives.
func (a Account) named(name, prefix string) bool {
	digits, is := strings.CutPrefix(name, a.prefix())
	return is && strings.HasPrefix(name, prefix) && partName.MatchString(digits)
}

// partName is what follows the run's prefix in a name: see Account.Prefix.
var partName = regexp.MustCompile(`^[0-9a-z]{2}-`)

// unfinishedLen is the length of what begins the label of an unfinished copy on Linode.
const unfinishedLen = len("clone_") + 8 + len("_")

// unfinished are the beginnings of the labels that the driver gives to unfinished copies of the clusters of these parts on
// Linode, where such a label has no prefix.
func (a Account) unfinished(prefix string) map[string]bool {
	begins := map[string]bool{}
	for part := 0; a.Cloud == "linode" && part < maxParts; part++ {
		for _, second := range []bool{false, true} {
			if v := (View{Part: part, Second: second}); strings.HasPrefix(v.prefix(a), prefix) {
				begins["clone_"+cloud.FullHash(v.cluster(a))[:8]+"_"] = true
			}
		}
	}
	return begins
}

func removeVolume(ctx context.Context, c cloud.Cloud, v cloud.Volume) error {
	if len(v.AttachedTo) > 0 {
		if err := c.Detach(ctx, v.ID, ""); err != nil {
			return err
		}
	}
	err := c.DeleteVolume(ctx, v.ID)
	if errors.Is(err, fault.Precondition) { // the list was older than an attach
		err = errors.Join(c.Detach(ctx, v.ID, ""), c.DeleteVolume(ctx, v.ID))
	}
	return err
}

// again repeats a removal, which is harmless, as long as the answer says that a repeat may help.
func again(ctx context.Context, call func() error) (err error) {
	for range 5 {
		err = call()
		switch fault.Of(err) {
		case fault.Busy, fault.Unavailable, fault.Uncertain:
			if ctx.Err() != nil {
				return err
			}
		default:
			return err
		}
	}
	return err
}

// Volumes are all volumes that the credentials see.
func Volumes(ctx context.Context, c cloud.Cloud) (all []cloud.Volume, err error) {
	for token := ""; ; {
		list, err := c.ListVolumes(ctx, cloud.Page{Token: token})
		if err != nil {
			return nil, err
		}
		all = append(all, list.Volumes...)
		if token = list.Next; token == "" {
			return all, nil
		}
	}
}

// Snapshots are all snapshots that the credentials see; none where the cloud has none.
func Snapshots(ctx context.Context, c cloud.Cloud) (all []cloud.Snapshot, err error) {
	if !c.Capabilities().Snapshots {
		return nil, nil
	}
	for token := ""; ; {
		list, err := c.ListSnapshots(ctx, "", cloud.Page{Token: token})
		if err != nil {
			return nil, err
		}
		all = append(all, list.Snapshots...)
		if token = list.Next; token == "" {
			return all, nil
		}
	}
}
