package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
)

// digitalOcean is an emulated account of that cloud.
type digitalOcean struct {
	*emulator.Cloud
	chance func() float64
}

const (
	digitalOceanRegion = emulator.DefaultRegion
	temporaryTag       = "cloudblock-temporary:"
)

func newDigitalOcean(o siteOptions) (site, error) {
	c, err := emulator.New(emulator.Options{
		InMemory: true, Speed: o.speed, Seed: o.seed, Droplets: machines, Region: digitalOceanRegion,
		Decide:    func(c emulator.Call) faults.Effect { return o.decide(request(c)) },
		Durations: emulator.Actions(lasting), Rules: digitalOceanRules(o.seed),
	})
	return digitalOcean{c, o.chance}, err
}

// digitalOceanRules lets different seeds meet what is not documented, and the rule that slows snapshots down.
func digitalOceanRules(seed uint64) emulator.Rules {
	r := emulator.Rules{RestoreHonoursSize: seed%2 == 0, ChangeOnAccept: seed%4 == 1}
	if seed%3 == 0 {
		r.SnapshotInterval, r.SnapshotsPerVolume = clock.Fixed(10*time.Minute), 25
	}
	return r
}

func (a digitalOcean) region() string            { return digitalOceanRegion }
func (a digitalOcean) least() cloud.Bytes        { return 0 }
func (a digitalOcean) flags() []string           { return nil }
func (a digitalOcean) token() string             { return a.Token }
func (a digitalOcean) client() http.RoundTripper { return a.Client().Transport }
func (a digitalOcean) handler() http.Handler     { return a.Handler() }
func (a digitalOcean) close() error              { return a.Close() }

// settle is longer than the age from which a temporary snapshot of a clone that was broken off, and never
// asked for again, is swept, and the time between two sweeps.
func (a digitalOcean) settle(real bool) time.Duration {
	if real {
		return 2 * time.Minute // nobody waits for hours: truth says of such a snapshot that it is swept later
	}
	return 2*time.Hour + 10*time.Minute
}

func (a digitalOcean) nodes() []cloud.NodeID { return nodesNumbered(a.Droplets()) }

// nodesNumbered are machines whose ids are numbers.
func nodesNumbered(ids []int) (nodes []cloud.NodeID) {
	for _, id := range ids {
		nodes = append(nodes, nodeNumbered(id))
	}
	return nodes
}

// nodeNumbered is one of them; 0 is none.
func nodeNumbered(id int) cloud.NodeID {
	if id == 0 {
		return ""
	}
	return cloud.NodeID(strconv.Itoa(id))
}

func numberOf(node cloud.NodeID) int {
	id, _ := strconv.Atoi(string(node)) // "" is 0: none
	return id
}

func (a digitalOcean) open(ctx context.Context, by way) (cloud.Cloud, func(context.Context) error, error) {
	c, err := digitalocean.New(ctx, digitalocean.Config{
		Token:    func() (string, error) { return a.Token, nil },
		Endpoint: a.URL, Transport: by.web, Region: digitalOceanRegion, ClusterID: ourCluster, Rand: a.chance, OrphanAge: leftOver,
	})
	if err != nil {
		return nil, nil, err
	}
	return c, c.Close, nil
}

func (a digitalOcean) truth(real bool) Truth {
	t := Truth{Volumes: map[cloud.VolumeID]Disk{}, Snapshots: map[cloud.SnapshotID]Image{}}
	for _, v := range a.Volumes() {
		t.Volumes[cloud.VolumeID(v.ID)] = Disk{
			Name: v.Name, Foreign: slices.Contains(v.Tags, theirTags[0]), Size: cloud.Bytes(v.SizeGiB) * cloud.GiB, Stamp: v.Content,
			On: nodesOf(nodeNumbered(v.DropletID)),
		}
	}
	for _, s := range a.Snapshots() {
		t.Snapshots[cloud.SnapshotID(s.ID)] = Image{
			Name: s.Name, Foreign: slices.Contains(s.Tags, theirTags[0]), Of: cloud.VolumeID(s.VolumeID), Stamp: s.Content,
			Later: real && slices.ContainsFunc(s.Tags, func(tag string) bool { return strings.HasPrefix(tag, temporaryTag) }),
		}
	}
	return t
}

func (a digitalOcean) where(id cloud.VolumeID) (on cloud.NodeID, ready bool) {
	vol, _ := a.Volume(string(id))
	return nodeNumbered(vol.DropletID), vol.DropletID != 0
}

func (a digitalOcean) changing(id cloud.VolumeID) bool {
	return slices.ContainsFunc(a.Running(), func(op emulator.Operation) bool { return op.Volume == string(id) })
}

func (a digitalOcean) put(id cloud.VolumeID, on cloud.NodeID) { a.Attached(string(id), numberOf(on)) }
func (a digitalOcean) stamp(id cloud.VolumeID, text string)   { a.SetContent(string(id), text) }
func (a digitalOcean) hold(id cloud.VolumeID) func()          { return a.Hold(string(id)) }

// foreign also makes a temporary snapshot of another cluster, which is that cluster's to remove.
func (a digitalOcean) foreign(volume, snapshot string) (cloud.VolumeID, error) {
	id, err := a.AddVolume(emulator.Volume{Name: volume, Region: digitalOceanRegion, SizeGiB: 1, Tags: theirTags, Content: theirStamp})
	if err != nil {
		return "", err
	}
	_, err = a.AddSnapshot(emulator.Snapshot{
		Name: snapshot, Region: digitalOceanRegion, VolumeID: id, SizeGiB: 1, Tags: theirTags, Content: theirStamp,
	})
	_, err2 := a.AddSnapshot(emulator.Snapshot{
		Name: "clone-of-" + volume, Region: digitalOceanRegion, VolumeID: id, SizeGiB: 1, Content: theirStamp,
		Tags: append([]string{temporaryTag + "clone"}, theirTags...),
	})
	return cloud.VolumeID(id), errors.Join(err, err2)
}

func (a digitalOcean) tend() []string { return nil }

func (a digitalOcean) complaints() []string {
	var texts []string
	for _, v := range a.Violations() {
		texts = append(texts, fmt.Sprintf("%s: %s droplet %d", v.What, v.VolumeName, v.Droplet))
	}
	return texts
}

func (a digitalOcean) odds(bool) odds { return odds{stale: .18, full: .08, pending: .08} }

func (a digitalOcean) sort(r request) sort {
	switch {
	case r.Method == http.MethodGet && strings.Contains(r.Route, "{"):
		return toReadOne
	case r.Method == http.MethodGet:
		return toReadMany
	case r.Action == "resize":
		return toGrow
	case r.Action != "":
		return toMove
	case r.Method == http.MethodPost && r.Route != "/v2/tags":
		return toBuild
	}
	return toChange
}

func (a digitalOcean) refusal(kind Kind, rng *rand.Rand) faults.Effect {
	switch kind {
	case Full:
		return faults.Effect{Status: http.StatusForbidden, Message: "volume/snapshot capacity limit exceeded"}
	case Pending:
		return faults.Effect{Status: http.StatusUnprocessableEntity, Message: "Droplet already has a pending event"}
	case Throttled: // the real one says in its headers that the budget is spent
		return faults.Effect{Status: http.StatusTooManyRequests, Header: map[string]string{"Ratelimit-Remaining": "0"}}
	}
	return webRefusal(kind, rng)
}
