package plan

import (
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/trouble"
)

// Action is one thing that users of the cluster do, or that happens to it.
type Action string

// The actions.
const (
	CreateClaim    Action = "create"   // a claim for Volume, from Source if there is one
	RunPod         Action = "run"      // a pod with Volume on Node, in place of one elsewhere
	StopPod        Action = "stop"     // no pod with Volume
	Grow           Action = "grow"     // Volume by Size more GiB
	TakeSnapshot   Action = "snapshot" // Snapshot of Volume
	DropSnapshot   Action = "unsnapshot"
	DeleteClaim    Action = "delete"
	Reconcile      Action = "reconcile" // the attacher compares ListVolumes with what it knows
	Look           Action = "look"      // the calls that only read
	Crash          Action = "crash"     // Controller, at Point of its next call of the cloud
	Lead           Action = "lead"      // Sidecar is led from beside Controller
	RestartSidecar Action = "restart"   // all calls of Sidecar under way are cancelled
	Adopt          Action = "adopt"     // delete another cluster's volume by its exact id
	AskAgain       Action = "again"     // for Volume, or for Snapshot unless that is negative, after its answer
	Meddle         Action = "meddle"    // somebody attaches Volume to Node by hand for a while, if it is free
	LateDetach     Action = "late"      // a former leader of the attachers repeats its detaches, once a volume has moved
	Away           Action = "away"      // there is no provisioner until half-made copies are old, then a sweep comes with it
)

// Step is one action at its time.
type Step struct {
	At         time.Duration
	Do         Action
	Volume     int
	Node       int
	Size       int
	Snapshot   int
	From       Origin
	Controller int
	Sidecar    Sidecar
	Point      trouble.CrashPoint
}

// Origin is where the content of a claim comes from.
type Origin struct {
	Kind   OriginKind
	Number int
}

// OriginKind is a kind of content source.
type OriginKind string

// The kinds of content sources.
const (
	Blank        OriginKind = ""
	FromVolume   OriginKind = "volume"
	FromSnapshot OriginKind = "snapshot"
)

// Sidecar is one of the callers of the controller; each has a leader of its own.
type Sidecar string

// The sidecars.
const (
	Provisioner Sidecar = "provisioner"
	Attacher    Sidecar = "attacher"
	Resizer     Sidecar = "resizer"
	Snapshotter Sidecar = "snapshotter"
	// Visitor stands for whoever else reads: people, tests, health monitors.
	Visitor Sidecar = "visitor"
)

// Sidecars are all of them.
var Sidecars = []Sidecar{Provisioner, Attacher, Resizer, Snapshotter, Visitor}

func (s Step) String() string {
	text := fmt.Sprintf("%6.1fs %s", s.At.Seconds(), s.Do)
	switch s.Do {
	case CreateClaim:
		text += fmt.Sprintf(" vol-%d of %d GiB", s.Volume, s.Size)
		if s.From.Kind != Blank {
			text += fmt.Sprintf(" from %s %d", s.From.Kind, s.From.Number)
		}
	case RunPod:
		text += fmt.Sprintf(" vol-%d on machine %d", s.Volume, s.Node)
	case Grow:
		text += fmt.Sprintf(" vol-%d by %d GiB", s.Volume, s.Size)
	case Meddle:
		text += fmt.Sprintf(" with vol-%d on machine %d", s.Volume, s.Node)
	case AskAgain:
		if text += fmt.Sprintf(" for vol-%d", s.Volume); s.Snapshot >= 0 {
			text = fmt.Sprintf("%6.1fs %s for snap-%d", s.At.Seconds(), s.Do, s.Snapshot)
		}
	case StopPod, DeleteClaim:
		text += fmt.Sprintf(" vol-%d", s.Volume)
	case TakeSnapshot:
		text += fmt.Sprintf(" snap-%d of vol-%d", s.Snapshot, s.Volume)
	case DropSnapshot:
		text += fmt.Sprintf(" snap-%d", s.Snapshot)
	case Crash:
		text += fmt.Sprintf(" controller %d %s", s.Controller, s.Point)
	case Lead:
		text += fmt.Sprintf(" %s beside controller %d", s.Sidecar, s.Controller)
	case RestartSidecar:
		text += " " + string(s.Sidecar)
	}
	return text
}
