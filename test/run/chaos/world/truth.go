package world

import (
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// Truth is everything that an account holds at one moment.
type Truth struct {
	Volumes   map[cloud.VolumeID]Disk
	Snapshots map[cloud.SnapshotID]Image
}

// Disk is a volume as it really is.
type Disk struct {
	// Name is what the cloud shows, or the request's name where it keeps that.
	Name    string
	Foreign bool
	Size    cloud.Bytes
	On      []cloud.NodeID
	// Halfway: the machine has no device of it, because it is still coming or going.
	Halfway bool
	// Dying: it is being deleted, or the cloud has broken it, so that nobody can use it.
	Dying bool
	Stamp string
	// Later: the driver removes it by itself, after more time than the run has.
	Later bool
}

// Image is a snapshot as it really is.
type Image struct {
	Name    string
	Foreign bool
	Of      cloud.VolumeID
	Dying   bool // as of a disk
	Stamp   string
	Later   bool // as of a disk
	// Lost: the cloud gave it up while it made it. The driver keeps it, because an earlier answer may have named it, and an
	// operator deletes it when no VolumeSnapshotContent does.
	Lost bool
}

// Program is one life of a controller, as its cloud sees it.
type Program struct {
	// Number is the controller's, from 0.
	Number int
	// Kill ends the program at once; the life of its backend is over when Kill returns.
	Kill func()
}

// nodesOf is where a volume is that is there alone; "" is nowhere.
func nodesOf(node cloud.NodeID) []cloud.NodeID {
	if node == "" {
		return nil
	}
	return []cloud.NodeID{node}
}

// dying: Yandex Cloud's words for what nobody can use.
func dying(status string) bool { return status == "DELETING" || status == "ERROR" }

// Truth is the state of the account as it really is.
func (w *World) Truth() Truth {
	t := Truth{Volumes: map[cloud.VolumeID]Disk{}, Snapshots: map[cloud.SnapshotID]Image{}}
	for _, v := range w.account.Volumes() {
		t.Volumes[cloud.VolumeID(v.ID)] = Disk{
			Name: v.Name, Foreign: slices.Contains(v.Tags, theirs) || v.Description == duplicateMark, Size: cloud.Bytes(v.Size), Stamp: v.Content,
			On: nodesOf(cloud.NodeID(v.Machine)), Halfway: v.Machine != "" && !v.Ready, Dying: dying(v.Status),
			Later: w.real && v.Machine == "" && strings.HasPrefix(v.Name, copying),
		}
	}
	for _, s := range w.account.Snapshots() {
		t.Snapshots[cloud.SnapshotID(s.ID)] = Image{
			Name: s.Name, Foreign: slices.Contains(s.Tags, theirs), Of: cloud.VolumeID(s.Source), Stamp: s.Content, Dying: dying(s.Status), Lost: s.Status == "ERROR",
			Later: w.real && (strings.HasPrefix(s.Name, copying) ||
				slices.ContainsFunc(s.Tags, func(tag string) bool { return strings.HasPrefix(tag, temporary) })),
		}
	}
	return t
}
