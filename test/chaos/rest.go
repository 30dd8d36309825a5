package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
)

// restWorld is an emulated account whose API is HTTP, or gRPC over it, reached by the real backend through
// memory.
type restWorld struct {
	in      *injector
	log     func(format string, args ...any)
	changed func()
	cloud   string
	names   driver.Names
	site    site
	// real: time is not simulated.
	real bool

	serving sync.WaitGroup
	mu      sync.Mutex
	holds   map[cloud.VolumeID]func()
}

// site is the account, as far as one cloud's differs from another's.
type site interface {
	region() string
	nodes() []cloud.NodeID
	// least is what the smallest claim has less than the smallest volume.
	least() cloud.Bytes
	// settle is how long after the last call the driver may need to tidy up; real: in time that nobody
	// simulates.
	settle(real bool) time.Duration
	truth(real bool) Truth
	// where says on which machine a volume is, and whether it is a disk there; "" is nowhere.
	where(id cloud.VolumeID) (on cloud.NodeID, ready bool)
	// changing says whether an operation of the volume is under way.
	changing(id cloud.VolumeID) bool
	// put changes where the volume is past everything; "" is nowhere.
	put(id cloud.VolumeID, on cloud.NodeID)
	stamp(id cloud.VolumeID, text string)
	hold(id cloud.VolumeID) (release func())
	foreign(volume, snapshot string) (cloud.VolumeID, error)
	tend() []string
	complaints() []string
	close() error

	// token opens the account, and flags are a controller's besides those that all clouds have; open makes
	// the backend, which reaches the account by one of the ways.
	token() string
	flags() []string
	open(ctx context.Context, by way) (cloud.Cloud, func(context.Context) error, error)
	// client and handler are the API, from either side.
	client() http.RoundTripper
	handler() http.Handler
	// sort says what a request is for, and odds how often what goes wrong: so that each kind of fault has its
	// share, with a backend that lists much or moves little.
	sort(r request) sort
	odds(real bool) odds
	// refusal is how this cloud refuses: because of a passing error, of too many requests, of too little
	// room, of a machine that is busy.
	refusal(kind Kind, rng *rand.Rand) faults.Effect
}

// way is how one controller program reaches an account.
type way struct {
	// web is for clients of HTTP.
	web http.RoundTripper
	// dial is for clients that have a connection.
	dial func(ctx context.Context, address string) (net.Conn, error)
}

// request is what an emulator asks about before it answers.
type request struct{ Method, Route, Action, Volume string }

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

// siteOptions are what each account is made with.
type siteOptions struct {
	seed uint64
	// speed of its time; 0 is for simulated time.
	speed  float64
	decide func(request) faults.Effect
	// chance is for the pauses of the backend: the same for the same moment of simulated time.
	chance func() float64
}

// lasting is how long operations usually take.
var lasting = clock.Span{Least: time.Second, Spread: 9 * time.Second}

// theirTags are those of what another cluster made.
var theirTags = []string{"cloudblock-cluster:theirs", "cloudblock-name-hash:0123456789abcdef0123"}

// rest makes the maker of a world whose volumes are bound to places of the scope. A speed of 0 is for
// simulated time.
func rest(name, scope string, speed float64, found func(siteOptions) (site, error)) maker {
	return func(in *injector, log func(format string, args ...any), changed func()) (World, error) {
		names, err := driver.NewNames(name, scope, "", nil)
		if err != nil {
			return nil, err
		}
		w := &restWorld{in: in, log: log, changed: changed, cloud: name, names: names, real: speed > 0, holds: map[cloud.VolumeID]func(){}}
		w.site, err = found(siteOptions{seed: in.seed, speed: speed, decide: w.decide, chance: func() float64 {
			return randomOf(in.seed, time.Now().String()).Float64()
		}})
		return w, err
	}
}

func (w *restWorld) Names() driver.Names   { return w.names }
func (w *restWorld) Zone() string          { return w.site.region() }
func (w *restWorld) Least() cloud.Bytes    { return w.site.least() }
func (w *restWorld) Settle() time.Duration { return w.site.settle(w.real) }
func (w *restWorld) Nodes() []cloud.NodeID { return w.site.nodes() }
func (w *restWorld) Truth() Truth          { return w.site.truth(w.real) }
func (w *restWorld) Tend() []string        { return w.site.tend() }
func (w *restWorld) Complaints() []string  { return w.site.complaints() }

// Close also waits until the servers of all programs have ended.
func (w *restWorld) Close() {
	_ = w.site.close()
	w.serving.Wait()
}

func (w *restWorld) Kinds() []Kind {
	return []Kind{Refused, Throttled, LostRequest, LostAnswer, Slow, Failed, Stale, Full, Pending}
}

func (w *restWorld) Open(life context.Context, p Program) (cloud.Cloud, func(), error) {
	c, closed, err := w.site.open(life, way{web: &wire{w: w, life: life, program: p}, dial: w.serveInMemory(life, p)})
	if err != nil {
		return nil, nil, err
	}
	return c, func() { _ = closed(context.Background()) }, nil
}

func (w *restWorld) Write(node cloud.NodeID, id cloud.VolumeID, stamp string) error {
	if on, ready := w.site.where(id); on != node || !ready {
		return fmt.Errorf("volume %s is not a disk of machine %s: %w", id, node, fault.Precondition)
	}
	w.site.stamp(id, stamp)
	return nil
}

// Attach moves a volume by hand.
func (w *restWorld) Attach(id cloud.VolumeID, from, to cloud.NodeID) error {
	if w.site.changing(id) {
		return fmt.Errorf("volume %s: %w", id, fault.Busy)
	}
	if on, _ := w.site.where(id); on != from {
		return fmt.Errorf("volume %s is attached to machine %q: %w", id, on, fault.Precondition)
	}
	w.site.put(id, to)
	return nil
}

func (w *restWorld) Use(id cloud.VolumeID, used bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if release := w.holds[id]; release != nil {
		release()
		delete(w.holds, id)
	}
	if used {
		w.holds[id] = w.site.hold(id)
	}
}

func (w *restWorld) Foreign(volume, snapshot string) (cloud.VolumeID, error) {
	return w.site.foreign(volume, snapshot)
}

// decide says what happens to a request.
func (w *restWorld) decide(r request) faults.Effect {
	name := strings.TrimSpace(r.Method + " " + r.Route + " " + r.Action)
	what := w.site.sort(r)
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
	likely := w.site.odds(w.real)
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
		return w.site.refusal(kind, rng)
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

// Serve answers the requests of a real program.
func (w *restWorld) Serve(p Program) http.Handler {
	return &wireHandler{in: w.in, log: w.log, program: p, cloud: w.site.handler()}
}

// Flags also writes the file with the token.
func (w *restWorld) Flags(api, dir string) ([]string, error) {
	token := filepath.Join(dir, "token")
	return append(w.site.flags(),
		"--cloud="+w.cloud, "--api-endpoint="+api, "--credentials-file="+token, "--region="+w.site.region(),
		"--cluster-id="+ourCluster, "--log-level=debug",
		// As patient as ever by the cluster's clock: a change that failed unseen holds up its machine so long.
		"--operation-timeout="+(5*time.Minute/binarySpeed).String(),
	), os.WriteFile(token, []byte(w.site.token()), 0o600)
}

// ourCluster is the cluster's name in the account.
const ourCluster = "ours"
