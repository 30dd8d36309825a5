package world

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts/backend"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/trouble"
)

// World is an emulated account whose API is HTTP, or gRPC over it, reached by the real backend through
// memory, with all that a test may see of it and do to it. It is made again for each run. Its methods are safe for
// concurrent use.
type World struct {
	in      *trouble.Injector
	log     func(format string, args ...any)
	changed func()
	names   driver.Names
	traits  traits
	account accounts.Account
	// real: time is not simulated.
	real bool
	// Unread: the backend has the fault UnreadDelete.
	Unread bool

	serving sync.WaitGroup
	mu      sync.Mutex
	holds   map[cloud.VolumeID]func()
}

const (
	// theirs is the tag of what another cluster made, temporary begins that of a temporary snapshot, and copying the name
	// of a copy that was never handed out and of such a snapshot without tags: the driver sweeps those.
	theirs    = "cloudblock-cluster:theirs"
	temporary = "cloudblock-temporary:"
	copying   = "clone"
	// duplicateMark is the description of a volume that was made as a duplicate.
	duplicateMark = "an older duplicate"
	// TheirStamp is the content of what another cluster made.
	TheirStamp = "theirs"
)

// theirLine is the description of another cluster's volumes on DigitalOcean.
const theirLine = "Created by cloudblock-csi; name-hash=0123456789abcdefghijklmnop; cluster=theirs"

// theirTags are those of what another cluster made.
var theirTags = []string{theirs, "cloudblock-name-hash:0123456789abcdef0123"}

// Names are those of the driver on this cloud.
func (w *World) Names() driver.Names { return w.names }

// Zone is the place of all volumes and machines of a run.
func (w *World) Zone() string { return w.account.Region() }

// Complaints are what the cloud itself saw that must never happen.
func (w *World) Complaints() []string { return w.account.Violations() }

// Least is added to the size of claims that copy nothing, where the smallest volume is large: so that every size is one of
// the cloud's. No claim of a run is smaller than 1 GiB.
func (w *World) Least() cloud.Bytes { return cloud.Bytes(w.account.Size()) - cloud.GiB }

// Settle is how long after the last call the driver may still need to tidy up by itself: longer than the age from which an orphan of a clone is swept, and the time between two sweeps.
func (w *World) Settle() time.Duration {
	if w.real {
		return 2 * time.Minute // nobody waits for hours: Truth says of such an orphan that it is swept later
	}
	return 2*time.Hour + 10*time.Minute
}

// Nodes are the machines of the account, by their numbers in the plan.
func (w *World) Nodes() (nodes []cloud.NodeID) {
	for _, id := range w.account.Machines() {
		nodes = append(nodes, cloud.NodeID(id))
	}
	return nodes
}

// Tend is an operator who reads the driver's errors, and deletes volumes whose create or clone failed in the cloud: only
// the call that saw it knows that they were never used. It returns their names.
func (w *World) Tend() []string {
	var done []string
	for _, v := range w.account.Volumes() {
		broken := v.Status == "contact_support" || v.Status == "ERROR"
		if broken && v.Machine == "" && w.account.DeleteVolume(v.ID) == nil {
			done = append(done, v.Name)
		}
	}
	return done
}

// Foreign makes a volume and a snapshot of another cluster, under these names, and a temporary snapshot, which is that
// cluster's to remove.
func (w *World) Foreign(volume, snapshot string) (cloud.VolumeID, error) {
	id, err := w.account.AddVolume(accounts.Volume{Name: volume, Description: theirLine, Tags: theirTags, Content: TheirStamp})
	if err != nil {
		return "", err
	}
	for _, snap := range []accounts.Snapshot{
		{Name: snapshot, Source: id, Tags: theirTags, Content: TheirStamp},
		{Name: "clone-of-" + volume, Source: id, Tags: append([]string{temporary + "clone"}, theirTags...), Content: TheirStamp},
	} {
		if _, err = w.account.AddSnapshot(snap); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return "", err
		}
	}
	return cloud.VolumeID(id), nil
}

// Duplicate makes an older volume of the same name for the same request, where the cloud allows that; "": it does not.
func (w *World) Duplicate(of cloud.VolumeID) cloud.VolumeID {
	if w.traits.duplicate == nil {
		return ""
	}
	return cloud.VolumeID(w.traits.duplicate(w.account, w.in.Seed, string(of)))
}

// Remove deletes what Duplicate has made; false: not now.
func (w *World) Remove(id cloud.VolumeID) bool { return w.account.DeleteVolume(string(id)) == nil }

// Close also waits until the servers of all programs have ended.
func (w *World) Close() {
	_ = w.account.Close()
	w.serving.Wait()
}

// Open returns the backend as one controller program has it. When its life ends nothing that is left of that program
// reaches the cloud any more, and what it had asked is not answered. The function ends what is left of it in the background.
// Its pauses are the same for the same moment of simulated time.
func (w *World) Open(life context.Context, p Program) (cloud.Cloud, func(), error) {
	var web http.RoundTripper = &wire{w: w, life: life, program: p}
	faulty := &unread{base: web, deleting: map[cloud.VolumeID]int{}}
	if w.Unread {
		web = faulty
	}
	c, err := backend.Open(life, w.account, backend.Config{
		Way:       accounts.Way{Web: web, Dial: w.serveInMemory(life, p)},
		ClusterID: ourCluster, OrphanAge: plan.LeftOver,
		Rand: func() float64 { return trouble.Random(w.in.Seed, time.Now().String()).Float64() },
	})
	if err != nil {
		return nil, nil, err
	}
	stop := func() { _ = c.Close(context.Background()) }
	if faulty.Cloud = c; w.Unread {
		return faulty, stop, nil
	}
	return c, stop, nil
}

// Write puts a stamp onto a volume as the machine does that has it. It fails where the volume is not attached to the
// machine, as the machine would find out.
func (w *World) Write(node cloud.NodeID, id cloud.VolumeID, stamp string) error {
	if v := accounts.Find(w.account, string(id)); v.Machine != string(node) || !v.Ready {
		return fmt.Errorf("volume %s is not a disk of machine %s: %w", id, node, fault.Precondition)
	}
	w.account.SetContent(string(id), stamp)
	return nil
}

// Attach moves a volume by hand, past everything: from is where it must be, to where it comes; "" is nowhere. It fails where
// the volume is not there, with fault.Busy where a change is under way.
func (w *World) Attach(id cloud.VolumeID, from, to cloud.NodeID) error {
	if w.account.Busy(string(id)) {
		return fmt.Errorf("volume %s: %w", id, fault.Busy)
	}
	if on := accounts.Find(w.account, string(id)).Machine; on != string(from) {
		return fmt.Errorf("volume %s is attached to machine %q: %w", id, on, fault.Precondition)
	}
	w.account.Attached(string(id), string(to))
	return nil
}

// Use tells the cloud that the machine has the volume mounted, or not any more.
func (w *World) Use(id cloud.VolumeID, used bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if release := w.holds[id]; release != nil {
		release()
		delete(w.holds, id)
	}
	if used {
		w.holds[id] = w.account.Hold(string(id))
	}
}

// Serve answers the requests of one real program.
func (w *World) Serve(p Program) http.Handler {
	return &wireHandler{in: w.in, log: w.log, program: p, cloud: w.account.Handler()}
}

// Flags are those of a controller whose API is at this address; it writes the file with the token into the folder.
func (w *World) Flags(api, dir string) ([]string, error) {
	token := filepath.Join(dir, "token")
	return append(w.account.Flags(),
		"--cloud="+w.account.Name(), "--api-endpoint="+api, "--credentials-file="+token,
		"--cluster-id="+ourCluster, "--log-level=debug",
		// As patient as ever by the cluster's clock: a change that failed unseen holds up its machine so long.
		"--operation-timeout="+(5*time.Minute/BinarySpeed).String(),
	), os.WriteFile(token, []byte(w.account.Token()), 0o600)
}

// ourCluster is the cluster's name in the account.
const ourCluster = "ours"
