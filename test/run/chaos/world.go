package main

import (
	"context"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

// World is one cloud account, with all that a test may see of it and do to it. It is made again for each
// run. Its methods are safe for concurrent use.
type World interface {
	// Names are the driver's names with this cloud.
	Names() driver.Names
	// Zone is the place of all volumes and machines of a run.
	Zone() string
	// Least is added to the size of claims that copy nothing, where the smallest volume is large: so that
	// every size is one of the cloud's.
	Least() cloud.Bytes
	// Nodes are two machines.
	Nodes() []cloud.NodeID

	// Open returns the backend as one controller program has it. When its life ends nothing that is
	// left of that program reaches the cloud any more, and what it had asked is not answered.
	// The function ends what is left of it in the background.
	Open(life context.Context, p Program) (cloud.Cloud, func(), error)

	// Truth is the state of the account as it really is.
	Truth() Truth
	// Write puts a stamp onto a volume as the machine does that has it. It fails where the volume is
	// not attached to the machine, as the machine would find out.
	Write(node cloud.NodeID, id cloud.VolumeID, stamp string) error
	// Use tells the cloud that the machine has the volume mounted, or not any more.
	Use(id cloud.VolumeID, used bool)
	// Attach moves a volume by hand, past everything: from is where it must be, to where it comes; "" is
	// nowhere. It fails where the volume is not there, with
	// fault.Busy where a change is under way.
	Attach(id cloud.VolumeID, from, to cloud.NodeID) error
	// Foreign makes a volume and a snapshot of another cluster, under these names.
	Foreign(volume, snapshot string) (cloud.VolumeID, error)
	// Tend is an operator who reads the driver's errors: what the cloud can bring to no end, and the driver
	// must not remove on a guess, is removed by hand. It returns the names of what that was.
	Tend() []string
	// Duplicate makes an older volume of the same name for the same request, where the cloud allows that; "": it does not.
	Duplicate(of cloud.VolumeID) cloud.VolumeID
	// Remove deletes a volume past everything; false: not now.
	Remove(id cloud.VolumeID) bool
	// Complaints are what the cloud itself saw that must never happen.
	Complaints() []string

	// Settle is how long after the last call the driver may still need to tidy up by itself.
	Settle() time.Duration
	// Kinds are the faults that this cloud can have. Each must make up its share.
	Kinds() []Kind
	// Close ends what still goes on in the cloud.
	Close()
}

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
