package sim

import (
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
)

// claim is a volume as the cluster sees it: the claim, its PersistentVolume and its pods.
type claim struct {
	number int
	name   string
	size   cloud.Bytes
	from   plan.Origin

	copied bool // it has a source
	wanted bool // the claim exists
	held   int  // copies of it are being made: the cluster keeps it
	// pending: the provisioner has to go on, because the volume may be in the cloud.
	pending  bool
	pv       *volume
	reply    *csi.CreateVolumeResponse // the first that said yes
	deleting bool                      // the PersistentVolume is
	gone     bool

	place int // the machine its pod is on, or -1
	// byHand is where somebody attached it past the cluster, which happens once.
	byHand  cloud.NodeID
	meddled bool
	vas     []*attachment
	// left is the machine that it was taken off last, or -1, and moved when it came to another one after that.
	left  int
	moved time.Time
	// late is the machine that a call under way takes it off which was given up long ago, or -1.
	late int

	goal cloud.Bytes // what the resizer works towards
	// stamps are the contents it ever had, the last the present one.
	stamps []stamp
	sent   time.Time // when the volume was asked for first
}

// stamp is a content and since when it is there.
type stamp struct {
	since time.Time
	text  string
}

// volume is a PersistentVolume.
type volume struct {
	id      cloud.VolumeID
	size    cloud.Bytes
	context map[string]string
}

// attachment is a VolumeAttachment and what the kubelet of its machine does.
type attachment struct {
	node     int
	asked    bool // a call was sent
	attached bool
	forced   bool // the attacher has to send the call again
	deleting bool
	gone     bool
	staged   bool
}

// snap is a VolumeSnapshot and its content object.
type snap struct {
	number  int
	name    string
	of      *claim
	size    cloud.Bytes
	wanted  bool
	held    int
	pending bool
	id      cloud.SnapshotID
	ready   bool
	gone    bool
	content string
	sent    time.Time
}

func claimName(number int) string { return fmt.Sprintf("pvc-%d", number) }
