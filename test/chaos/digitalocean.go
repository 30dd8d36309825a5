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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
)

// digitalOceanWorld is an emulated account, reached by the real backend through memory.
type digitalOceanWorld struct {
	in      *injector
	log     func(format string, args ...any)
	changed func()
	names   driver.Names
	account *emulator.Cloud
	// real: time is not simulated.
	real bool

	mu    sync.Mutex
	holds map[cloud.VolumeID]func()
}

const (
	digitalOceanRegion = emulator.DefaultRegion
	temporaryTag       = "cloudblock-temporary:"
	theirClusterTag    = "cloudblock-cluster:theirs"
)

func newDigitalOceanWorld(in *injector, log func(format string, args ...any), changed func()) (World, error) {
	return digitalOceanAt(0, in, log, changed)
}

// newServedDigitalOcean is the account for real programs, with its time sped up.
func newServedDigitalOcean(in *injector, log func(format string, args ...any), changed func()) (World, error) {
	return digitalOceanAt(binarySpeed, in, log, changed)
}

// digitalOceanAt makes the account; a speed of 0 is for simulated time.
func digitalOceanAt(speed float64, in *injector, log func(format string, args ...any), changed func()) (World, error) {
	names, err := driver.NewNames("digitalocean", driver.ScopeRegion, "", nil)
	if err != nil {
		return nil, err
	}
	w := &digitalOceanWorld{in: in, log: log, changed: changed, names: names, real: speed > 0, holds: map[cloud.VolumeID]func(){}}
	w.account, err = emulator.New(emulator.Options{
		InMemory: true, Speed: speed, Seed: in.seed, Droplets: machines, Region: digitalOceanRegion, Decide: w.decide,
		Durations: emulator.Actions(clock.Span{Least: time.Second, Spread: 9 * time.Second}), Rules: rulesOf(in.seed),
	})
	return w, err
}

// rulesOf lets different seeds meet what is not documented, and the rule that slows snapshots down.
func rulesOf(seed uint64) emulator.Rules {
	r := emulator.Rules{RestoreHonoursSize: seed%2 == 0, ChangeOnAccept: seed%4 == 1}
	if seed%3 == 0 {
		r.SnapshotInterval, r.SnapshotsPerVolume = clock.Fixed(10*time.Minute), 25
	}
	return r
}

func (w *digitalOceanWorld) Names() driver.Names { return w.names }
func (w *digitalOceanWorld) Zone() string        { return digitalOceanRegion }

// Settle is longer than the age from which a temporary snapshot of a clone that was broken off, and never
// asked for again, is swept, and the time between two sweeps.
func (w *digitalOceanWorld) Settle() time.Duration {
	if w.real {
		return 2 * time.Minute // nobody waits for hours: Truth says of such a snapshot that it is swept later
	}
	return 2*time.Hour + 10*time.Minute
}

func (w *digitalOceanWorld) Nodes() []cloud.NodeID {
	var nodes []cloud.NodeID
	for _, id := range w.account.Droplets() {
		nodes = append(nodes, cloud.NodeID(strconv.Itoa(id)))
	}
	return nodes
}

func (w *digitalOceanWorld) Kinds() []Kind {
	return []Kind{Refused, Throttled, LostRequest, LostAnswer, Slow, Failed, Stale, Full, Pending}
}

func (w *digitalOceanWorld) Open(life context.Context, p Program) (cloud.Cloud, func(), error) {
	c, err := digitalocean.New(life, digitalocean.Config{
		Token:    func() (string, error) { return w.account.Token, nil },
		Endpoint: w.account.URL, Transport: &wire{w: w, life: life, program: p},
		Region: digitalOceanRegion, ClusterID: "ours",
	})
	if err != nil {
		return nil, nil, err
	}
	return c, func() { _ = c.Close(context.Background()) }, nil
}

func (w *digitalOceanWorld) Truth() Truth {
	t := Truth{Volumes: map[cloud.VolumeID]Disk{}, Snapshots: map[cloud.SnapshotID]Image{}}
	for _, v := range w.account.Volumes() {
		d := Disk{Name: v.Name, Foreign: slices.Contains(v.Tags, theirClusterTag), Size: cloud.Bytes(v.SizeGiB) * cloud.GiB, Stamp: v.Content}
		if v.DropletID != 0 {
			d.On = nodesOf(cloud.NodeID(strconv.Itoa(v.DropletID)))
		}
		t.Volumes[cloud.VolumeID(v.ID)] = d
	}
	for _, s := range w.account.Snapshots() {
		t.Snapshots[cloud.SnapshotID(s.ID)] = Image{
			Name: s.Name, Foreign: slices.Contains(s.Tags, theirClusterTag), Of: cloud.VolumeID(s.VolumeID), Stamp: s.Content,
			Later: w.real && slices.ContainsFunc(s.Tags, func(tag string) bool { return strings.HasPrefix(tag, temporaryTag) }),
		}
	}
	return t
}

func (w *digitalOceanWorld) Write(node cloud.NodeID, id cloud.VolumeID, stamp string) error {
	vol, there := w.account.Volume(string(id))
	if !there || strconv.Itoa(vol.DropletID) != string(node) {
		return fmt.Errorf("volume %s is not attached to droplet %s: %w", id, node, fault.Precondition)
	}
	w.account.SetContent(string(id), stamp)
	return nil
}

// Attach moves a volume by hand.
func (w *digitalOceanWorld) Attach(id cloud.VolumeID, from, to cloud.NodeID) error {
	vol, there := w.account.Volume(string(id))
	busy := slices.ContainsFunc(w.account.Running(), func(op emulator.Operation) bool { return op.Volume == string(id) })
	if busy {
		return fmt.Errorf("volume %s: %w", id, fault.Busy)
	}
	if was, _ := strconv.Atoi(string(from)); !there || vol.DropletID != was {
		return fmt.Errorf("volume %s is attached to droplet %d: %w", id, vol.DropletID, fault.Precondition)
	}
	droplet, _ := strconv.Atoi(string(to)) // "" is 0: free
	w.account.Attached(string(id), droplet)
	return nil
}

func (w *digitalOceanWorld) Use(id cloud.VolumeID, used bool) {
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

// Foreign also makes a temporary snapshot of another cluster, which is that cluster's to remove.
func (w *digitalOceanWorld) Foreign(volume, snapshot string) (cloud.VolumeID, error) {
	tags := []string{theirClusterTag, "cloudblock-name-hash:0123456789abcdef0123"}
	id, err := w.account.AddVolume(emulator.Volume{Name: volume, Region: digitalOceanRegion, SizeGiB: 1, Tags: tags, Content: theirStamp})
	if err != nil {
		return "", err
	}
	_, err = w.account.AddSnapshot(emulator.Snapshot{
		Name: snapshot, Region: digitalOceanRegion, VolumeID: id, SizeGiB: 1, Tags: tags, Content: theirStamp,
	})
	_, err2 := w.account.AddSnapshot(emulator.Snapshot{
		Name: "clone-of-" + volume, Region: digitalOceanRegion, VolumeID: id, SizeGiB: 1, Content: theirStamp,
		Tags: append([]string{temporaryTag + "clone"}, tags...),
	})
	return cloud.VolumeID(id), errors.Join(err, err2)
}

func (w *digitalOceanWorld) Complaints() []string {
	var texts []string
	for _, v := range w.account.Violations() {
		texts = append(texts, fmt.Sprintf("%s: %s droplet %d", v.What, v.VolumeName, v.Droplet))
	}
	return texts
}

func (w *digitalOceanWorld) Close() { _ = w.account.Close() }

// decide says what happens to a request.
func (w *digitalOceanWorld) decide(c emulator.Call) faults.Effect {
	name := strings.TrimSpace(c.Method + " " + c.Route + " " + c.Action)
	kind, rng := w.in.decide(name, c.Volume, w.chances(c))
	if kind != "" {
		w.log("cloud: %s %s: %s", name, c.Volume, kind)
	}
	e := effectOf(kind, c, rng)
	e.Delay = clock.Fixed(between(rng, 5*time.Millisecond, 40*time.Millisecond))
	return e
}

// chances are what can happen to a request of this kind.
func (w *digitalOceanWorld) chances(c emulator.Call) []chance {
	if c.Method == http.MethodGet {
		all := []chance{{Refused, .012}, {Throttled, .008}, {LostRequest, .008}, {LostAnswer, .008}}
		// An account that is full and hides what it holds at the same time cannot be seen through.
		if !strings.Contains(c.Route, "{") && !w.in.since(time.Now().Add(-lag), Full) {
			all = append(all, chance{Stale, .18})
		}
		return all
	}
	all := []chance{{Refused, .03}, {Throttled, .03}, {LostRequest, .04}, {LostAnswer, .06}, {Slow, .05}}
	switch {
	case c.Action == "resize":
		all = append(all, chance{Full, .15}, chance{Failed, .1})
	case c.Action != "":
		all = append(all, chance{Failed, .08}, chance{Pending, .08})
	case c.Method == http.MethodPost && c.Route != "/v2/tags":
		all = append(all, chance{Full, .08})
	}
	return all
}

// effectOf is a fault in the emulator's words.
func effectOf(kind Kind, c emulator.Call, rng *rand.Rand) faults.Effect {
	switch kind {
	case Refused:
		return faults.Effect{Status: []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable}[rng.IntN(3)]}
	case Throttled:
		return faults.Effect{Status: http.StatusTooManyRequests}
	case LostRequest:
		return faults.Effect{Lost: faults.LostBefore}
	case LostAnswer:
		return faults.Effect{Lost: faults.LostAfter}
	case Slow:
		if c.Action != "" {
			return faults.Effect{Takes: clock.Fixed(slowness(rng))}
		}
		return faults.Effect{DelayAnswer: clock.Fixed(slowness(rng))}
	case Failed:
		return faults.Effect{Errored: true}
	case Stale:
		return faults.Effect{StaleAge: clock.Fixed(between(rng, time.Second, lag))}
	case Full:
		return faults.Effect{Status: http.StatusForbidden, Message: "volume/snapshot capacity limit exceeded"}
	case Pending:
		return faults.Effect{Status: http.StatusUnprocessableEntity, Message: "Droplet already has a pending event"}
	default:
		return faults.Effect{}
	}
}

// Serve answers the requests of a real program.
func (w *digitalOceanWorld) Serve(p Program) http.Handler {
	return &wireHandler{in: w.in, log: w.log, program: p, cloud: w.account.Handler()}
}

// Flags also writes the file with the token.
func (w *digitalOceanWorld) Flags(api, dir string) ([]string, error) {
	token := filepath.Join(dir, "token")
	return []string{
		"--cloud=digitalocean", "--api-endpoint=" + api, "--credentials-file=" + token, "--region=" + digitalOceanRegion,
		"--cluster-id=ours", "--log-level=debug",
	}, os.WriteFile(token, []byte(w.account.Token), 0o600)
}

// wire is the way of one controller program to the account.
type wire struct {
	w       *digitalOceanWorld
	life    context.Context
	program Program
}

func (l *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	at := r.Method + " " + r.URL.Path
	if l.life.Err() == nil && l.w.in.crashes(l.program.Number, beforeEffect) {
		l.w.log("controller %d: killed before %s", l.program.Number, at)
		l.program.Kill()
	}
	if l.life.Err() != nil {
		return nil, errCut
	}
	ctx, cancel := joined(r.Context(), l.life)
	defer cancel() // the body is in memory
	answer, err := l.w.account.Client().Transport.RoundTrip(r.WithContext(ctx))
	if r.Method != http.MethodGet {
		l.w.changed()
	}
	if l.life.Err() == nil && l.w.in.crashes(l.program.Number, afterEffect) {
		l.w.log("controller %d: killed after %s", l.program.Number, at)
		l.program.Kill()
	}
	if l.life.Err() != nil {
		return nil, errCut
	}
	return answer, err
}
