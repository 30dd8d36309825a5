package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts/backend"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// restWorld is an emulated account whose API is HTTP, or gRPC over it, reached by the real backend through
// memory, with all that a test may see of it and do to it. It is made again for each run. Its methods are safe for
// concurrent use.
type restWorld struct {
	in      *injector
	log     func(format string, args ...any)
	changed func()
	names   driver.Names
	traits  traits
	account accounts.Account
	// real: time is not simulated.
	real bool
	// unread: the backend has the fault unreadDelete.
	unread bool

	serving sync.WaitGroup
	mu      sync.Mutex
	holds   map[cloud.VolumeID]func()
}

// traits are what differs between the clouds when things go wrong there.
type traits struct {
	name string
	// start starts an account, with rules that depend on the seed.
	start func(accounts.Options) (accounts.Account, error)
	// sort says what a request is for, and odds how often what goes wrong: so that each kind of fault has its
	// share, with a backend that lists much or moves little.
	sort func(accounts.Call) sort
	odds func(real bool) odds
	// refusal is how this cloud refuses: because of a passing error, of too many requests, of too little
	// room, of a machine that is busy.
	refusal func(kind Kind, rng *rand.Rand) faults.Effect
	// duplicate makes an older volume with the name of one, "" where the rules of the seed do not allow that; nil: names are
	// unique.
	duplicate func(a accounts.Account, seed uint64, of string) string
}

// sort is what a request is for.
type sort int

const (
	toReadOne sort = iota
	toReadMany
	toChange     // that is through with its answer
	toBuild      // of something new, which is there with the answer
	toBuildLater // which is there some time after the answer
	toChangeLater
	toRemoveLater
	toMove // to or from a machine
	toGrow
)

// later says that the change goes on after the answer.
func (s sort) later() bool { return s >= toBuildLater }

// odds are the probabilities of faults for each request that can meet them.
type odds struct{ stale, full, pending float64 }

// lasting is how long operations usually take.
var lasting = clock.Span{Least: time.Second, Spread: 9 * time.Second}

const (
	// theirs is the tag of what another cluster made, temporary begins that of a temporary snapshot, and copying the name
	// of a copy that was never handed out and of such a snapshot without tags: the driver sweeps those.
	theirs    = "cloudblock-cluster:theirs"
	temporary = "cloudblock-temporary:"
	copying   = "clone"
	// duplicateMark is the description of a volume that was made as a duplicate.
	duplicateMark = "an older duplicate"
	// theirStamp is the content of what another cluster made.
	theirStamp = "theirs"
	// lag is how old the state is that a stale read shows.
	lag = 45 * time.Second
)

// theirLine is the description of another cluster's volumes on DigitalOcean.
const theirLine = "Created by cloudblock-csi; name-hash=0123456789abcdefghijklmnop; cluster=theirs"

// theirTags are those of what another cluster made.
var theirTags = []string{theirs, "cloudblock-name-hash:0123456789abcdef0123"}

// rest makes the maker of a world. A speed of 0 is for simulated time.
func rest(t traits, speed float64) maker {
	return func(in *injector, log func(format string, args ...any), changed func()) (*restWorld, error) {
		is, _ := profile.Of(t.name)
		names, err := driver.NewNames(t.name, is.Scope, "", nil)
		if err != nil {
			return nil, err
		}
		w := &restWorld{in: in, log: log, changed: changed, names: names, traits: t, real: speed > 0, holds: map[cloud.VolumeID]func(){}}
		w.account, err = t.start(accounts.Options{Machines: machines, Seed: in.seed, Speed: speed, Takes: lasting, Decide: w.decide})
		return w, err
	}
}

func (w *restWorld) Names() driver.Names { return w.names }

// Zone is the place of all volumes and machines of a run.
func (w *restWorld) Zone() string { return w.account.Region() }

// Complaints are what the cloud itself saw that must never happen.
func (w *restWorld) Complaints() []string { return w.account.Violations() }

// Least is added to the size of claims that copy nothing, where the smallest volume is large: so that every size is one of
// the cloud's. No claim of a run is smaller than 1 GiB.
func (w *restWorld) Least() cloud.Bytes { return cloud.Bytes(w.account.Size()) - cloud.GiB }

// Settle is how long after the last call the driver may still need to tidy up by itself: longer than the age from which an orphan of a clone is swept, and the time between two sweeps.
func (w *restWorld) Settle() time.Duration {
	if w.real {
		return 2 * time.Minute // nobody waits for hours: Truth says of such an orphan that it is swept later
	}
	return 2*time.Hour + 10*time.Minute
}

func (w *restWorld) Nodes() (nodes []cloud.NodeID) {
	for _, id := range w.account.Machines() {
		nodes = append(nodes, cloud.NodeID(id))
	}
	return nodes
}

// Truth is the state of the account as it really is.
func (w *restWorld) Truth() Truth {
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

// nodesOf is where a volume is that is there alone; "" is nowhere.
func nodesOf(node cloud.NodeID) []cloud.NodeID {
	if node == "" {
		return nil
	}
	return []cloud.NodeID{node}
}

// dying: Yandex Cloud's words for what nobody can use.
func dying(status string) bool { return status == "DELETING" || status == "ERROR" }

// Tend is an operator who reads the driver's errors, and deletes volumes whose create or clone failed in the cloud: only
// the call that saw it knows that they were never used. It returns their names.
func (w *restWorld) Tend() []string {
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
func (w *restWorld) Foreign(volume, snapshot string) (cloud.VolumeID, error) {
	id, err := w.account.AddVolume(accounts.Volume{Name: volume, Description: theirLine, Tags: theirTags, Content: theirStamp})
	if err != nil {
		return "", err
	}
	for _, snap := range []accounts.Snapshot{
		{Name: snapshot, Source: id, Tags: theirTags, Content: theirStamp},
		{Name: "clone-of-" + volume, Source: id, Tags: append([]string{temporary + "clone"}, theirTags...), Content: theirStamp},
	} {
		if _, err = w.account.AddSnapshot(snap); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return "", err
		}
	}
	return cloud.VolumeID(id), nil
}

// Duplicate makes an older volume of the same name for the same request, where the cloud allows that; "": it does not.
func (w *restWorld) Duplicate(of cloud.VolumeID) cloud.VolumeID {
	if w.traits.duplicate == nil {
		return ""
	}
	return cloud.VolumeID(w.traits.duplicate(w.account, w.in.seed, string(of)))
}

// Remove deletes what Duplicate has made; false: not now.
func (w *restWorld) Remove(id cloud.VolumeID) bool { return w.account.DeleteVolume(string(id)) == nil }

// Close also waits until the servers of all programs have ended.
func (w *restWorld) Close() {
	_ = w.account.Close()
	w.serving.Wait()
}

// Kinds are the faults that this cloud can have. Each must make up its share.
func (w *restWorld) Kinds() []Kind {
	return []Kind{Refused, Throttled, LostRequest, LostAnswer, Slow, Failed, Stale, Full, Pending}
}

// Open returns the backend as one controller program has it. When its life ends nothing that is left of that program
// reaches the cloud any more, and what it had asked is not answered. The function ends what is left of it in the background.
// Its pauses are the same for the same moment of simulated time.
func (w *restWorld) Open(life context.Context, p Program) (cloud.Cloud, func(), error) {
	var web http.RoundTripper = &wire{w: w, life: life, program: p}
	faulty := &unread{base: web, deleting: map[cloud.VolumeID]int{}}
	if w.unread {
		web = faulty
	}
	c, err := backend.Open(life, w.account, backend.Config{
		Way:       accounts.Way{Web: web, Dial: w.serveInMemory(life, p)},
		ClusterID: ourCluster, OrphanAge: leftOver,
		Rand: func() float64 { return randomOf(w.in.seed, time.Now().String()).Float64() },
	})
	if err != nil {
		return nil, nil, err
	}
	stop := func() { _ = c.Close(context.Background()) }
	if faulty.Cloud = c; w.unread {
		return faulty, stop, nil
	}
	return c, stop, nil
}

// Write puts a stamp onto a volume as the machine does that has it. It fails where the volume is not attached to the
// machine, as the machine would find out.
func (w *restWorld) Write(node cloud.NodeID, id cloud.VolumeID, stamp string) error {
	if v := accounts.Find(w.account, string(id)); v.Machine != string(node) || !v.Ready {
		return fmt.Errorf("volume %s is not a disk of machine %s: %w", id, node, fault.Precondition)
	}
	w.account.SetContent(string(id), stamp)
	return nil
}

// Attach moves a volume by hand, past everything: from is where it must be, to where it comes; "" is nowhere. It fails where
// the volume is not there, with fault.Busy where a change is under way.
func (w *restWorld) Attach(id cloud.VolumeID, from, to cloud.NodeID) error {
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
func (w *restWorld) Use(id cloud.VolumeID, used bool) {
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

// decide says what happens to a request.
func (w *restWorld) decide(r accounts.Call) faults.Effect {
	name := strings.TrimSpace(r.Method + " " + r.Route + " " + r.Action)
	what := w.traits.sort(r)
	kind, rng := w.in.decide(name, r.Volume, w.chances(what))
	if kind != "" {
		w.log("cloud: %s %s: %s", name, r.Volume, kind)
	}
	e := w.effect(kind, what, rng)
	e.Delay = clock.Fixed(between(rng, 5*time.Millisecond, 40*time.Millisecond))
	return e
}

// chances are what can happen to a request of a sort.
func (w *restWorld) chances(s sort) []chance {
	likely := w.traits.odds(w.real)
	if s == toReadOne || s == toReadMany {
		all := []chance{{Refused, .012}, {Throttled, .008}, {LostRequest, .008}, {LostAnswer, .008}}
		// An account that is full and hides what it holds at the same time cannot be seen through.
		if s == toReadMany && !w.in.since(time.Now().Add(-lag), Full) {
			if w.in.since(time.Now().Add(-unlucky), Late) {
				likely.stale = unluckily
			}
			all = append(all, chance{Stale, likely.stale})
		}
		return all
	}
	all := []chance{{Refused, .03}, {Throttled, .03}, {LostRequest, .04}, {LostAnswer, .06}, {Slow, .05}}
	switch s {
	case toGrow:
		all = append(all, chance{Full, .15}, chance{Failed, .1})
	case toMove:
		all = append(all, chance{Failed, .08}, chance{Pending, likely.pending})
	case toBuild:
		all = append(all, chance{Full, likely.full})
	case toBuildLater, toChangeLater:
		all = append(all, chance{Full, likely.full}, chance{Failed, .05})
	case toRemoveLater:
		all = append(all, chance{Failed, .05})
	}
	return all
}

// effect is a fault in the emulators' words.
func (w *restWorld) effect(kind Kind, s sort, rng *rand.Rand) faults.Effect {
	switch kind {
	case Refused, Throttled, Full, Pending:
		return w.traits.refusal(kind, rng)
	case LostRequest:
		return faults.Effect{Lost: faults.LostBefore}
	case LostAnswer:
		return faults.Effect{Lost: faults.LostAfter}
	case Slow:
		if s.later() {
			return faults.Effect{Takes: clock.Fixed(slowness(rng))}
		}
		return faults.Effect{DelayAnswer: clock.Fixed(slowness(rng))}
	case Failed:
		return faults.Effect{Errored: true}
	case Stale:
		return faults.Effect{StaleAge: clock.Fixed(between(rng, time.Second, lag))}
	default:
		return faults.Effect{}
	}
}

// webRefusal is how every cloud refuses whose API is plain HTTP.
func webRefusal(kind Kind, rng *rand.Rand) faults.Effect {
	if kind == Throttled {
		return faults.Effect{Status: http.StatusTooManyRequests}
	}
	return faults.Effect{Status: []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable}[rng.IntN(3)]}
}

// Serve answers the requests of one real program.
func (w *restWorld) Serve(p Program) http.Handler {
	return &wireHandler{in: w.in, log: w.log, program: p, cloud: w.account.Handler()}
}

// Flags are those of a controller whose API is at this address; it writes the file with the token into the folder.
func (w *restWorld) Flags(api, dir string) ([]string, error) {
	token := filepath.Join(dir, "token")
	return append(w.account.Flags(),
		"--cloud="+w.account.Name(), "--api-endpoint="+api, "--credentials-file="+token,
		"--cluster-id="+ourCluster, "--log-level=debug",
		// As patient as ever by the cluster's clock: a change that failed unseen holds up its machine so long.
		"--operation-timeout="+(5*time.Minute/binarySpeed).String(),
	), os.WriteFile(token, []byte(w.account.Token()), 0o600)
}

// ourCluster is the cluster's name in the account.
const ourCluster = "ours"
