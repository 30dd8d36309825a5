package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	emulated "github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts/backend"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// The clusters of a history. The volumes of the last have no mark, as those of a vendor's driver.
var clusters = []string{"alpha", "beta", "gamma"}

const gamma = "gamma"

// thing is a volume or a snapshot of a history.
type thing struct {
	kind, id  string
	maker     string // the cluster whose mark it has
	temporary bool
	size      int64
	of        string // the volume of a snapshot
	ns, claim string // of the claim that it was created for
	tagged    bool   // it has tags with them
	attached  bool
	needed    bool              // a cluster has, or is about to have, an object for it
	in        map[string]*entry // what clusters have for it
}

// entry is what a cluster has for a thing: a volume and its claim, or a content. One of a claim alone may lose its thing.
type entry struct {
	ns, name, class, handle string
	uid                     int
	volume                  bool // there is a PersistentVolume
	claimed, pending        bool // there is a claim; it has no volume yet
	of                      string
}

// history is an account that three clusters use.
type history struct {
	*inCloud

	rand   *rand.Rand
	clouds map[string]cloud.Cloud
	tags   map[string]bool // whether the driver of a cluster writes the names of claims
	things []*thing
	alone  map[string][]*entry // claims without a thing
	number int
}

func newHistory(t *testing.T, name string, seed uint64) *history {
	machines := 1
	if name == "yandex" {
		machines = 0 // a machine's boot disk is a volume of the account, too
	}
	h := &history{
		inCloud: startInCloud(t, name, machines), rand: rand.New(rand.NewPCG(seed, 1)), clouds: map[string]cloud.Cloud{}, tags: map[string]bool{}, alone: map[string][]*entry{},
	}
	if l, is := h.account.(*accounts.Linode); is {
		l.KeepsClones = true
	}
	for _, cluster := range clusters[:2] {
		h.tags[cluster] = name != "linode" || h.rand.IntN(2) == 0
		c, err := emulated.Open(t.Context(), h.account, emulated.Config{ClusterID: cluster, SweepEvery: -1, Tick: time.Millisecond, KubernetesTags: h.tags[cluster]})
		ok(t, err)
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		h.clouds[cluster] = c
	}
	return h
}

// pick returns one of the things for which a condition holds; nil: there is none.
func (h *history) pick(is func(*thing) bool) *thing {
	var all []*thing
	for _, v := range h.things {
		if is(v) {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[h.rand.IntN(len(all))]
}

// bound returns a volume of a cluster with a PersistentVolume and a claim; nil: there is none.
func (h *history) bound(cluster string) *thing {
	return h.pick(func(v *thing) bool {
		e := v.in[cluster]
		return v.kind == kindVolume && v.maker == cluster && e != nil && e.volume && e.claimed
	})
}

func (h *history) newEntry() *entry {
	h.number++
	return &entry{
		ns: []string{"shop", "web", "data.base"}[h.rand.IntN(3)], name: fmt.Sprintf("c%03d.x", h.number), uid: h.number,
		class: []string{"fast", "slow"}[h.rand.IntN(2)], claimed: true,
	}
}

// create lets a cluster's driver create a volume, from a source or blank, for an entry.
func (h *history) create(cluster string, e *entry, source cloud.Source, size int64) *thing {
	h.t.Helper()
	var tags []cloud.Tag
	if h.tags[cluster] {
		tags = []cloud.Tag{{Key: "cloudblock-pvc-namespace", Value: e.ns}, {Key: "cloudblock-pvc", Value: e.name}, {Key: "cloudblock-pv", Value: fmt.Sprint("pvc-", e.uid)}}
	}
	size = max(size, h.account.Size()*int64(1+h.rand.IntN(3)))
	v, err := h.clouds[cluster].CreateVolume(h.t.Context(), cloud.CreateVolumeRequest{Name: fmt.Sprintf("pvc-%d", e.uid), Size: cloud.Bytes(size), Source: source, Tags: tags})
	ok(h.t, err)
	e.handle = string(v.ID)
	made := &thing{
		kind: kindVolume, id: e.handle, maker: cluster, size: int64(v.Size), ns: e.ns, claim: e.name, tagged: h.tags[cluster], needed: true, in: map[string]*entry{cluster: e},
	}
	h.things = append(h.things, made)
	return made
}

// byHand adds a volume without a mark.
func (h *history) byHand() *thing {
	h.t.Helper()
	h.number++
	v := &thing{kind: kindVolume, size: h.account.Size(), in: map[string]*entry{}}
	var err error
	v.id, err = h.account.AddVolume(accounts.Volume{Name: fmt.Sprintf("hand-%d", h.number), Size: v.size})
	ok(h.t, err)
	h.things = append(h.things, v)
	return v
}

// step does one random thing in one of the clusters.
func (h *history) step() {
	h.t.Helper()
	cluster := clusters[h.rand.IntN(len(clusters))]
	if h.rand.IntN(12) == 0 { // a cluster imports a volume without a mark
		e := h.newEntry()
		e.volume = true
		v := h.byHand()
		e.handle, v.needed = v.id, true
		v.in[cluster] = e
		return
	}
	if cluster == gamma {
		v := h.byHand()
		if h.rand.IntN(3) > 0 {
			e := h.newEntry()
			e.volume, e.handle, v.needed = true, v.id, true
			if h.account.Name() == "linode" && h.rand.IntN(2) == 0 {
				e.handle += "-pvc0123456789abcdef" // as the vendor's driver writes it
			}
			v.in[gamma] = e
		}
		return
	}
	old := h.bound(cluster)
	switch n := h.rand.IntN(24); {
	case n < 4 || old == nil:
		h.create(cluster, h.newEntry(), cloud.Source{}, 0).in[cluster].volume = true
	case n == 4:
		h.create(cluster, h.newEntry(), cloud.Source{}, 0).in[cluster].pending = true
	case n == 5:
		e := h.newEntry()
		e.pending = true
		h.alone[cluster] = append(h.alone[cluster], e)
	case n < 8 || n > 20: // the objects are gone, the volume stays
		delete(old.in, cluster)
		old.needed = false
	case n == 8: // the same name is claimed again
		e := *old.in[cluster]
		h.number++
		e.uid, e.pending, e.volume, e.handle = h.number, true, false, ""
		h.alone[cluster] = append(h.alone[cluster], &e)
		delete(old.in, cluster)
		old.needed = false
	case n == 9:
		old.in[cluster].claimed = false // released
	case n == 10:
		old.in[cluster].volume = false // its PersistentVolume was deleted by mistake
	case n < 13:
		h.create(cluster, h.newEntry(), cloud.Source{Volume: cloud.VolumeID(old.id)}, old.size).in[cluster].volume = true
	case n == 13:
		_, err := h.clouds[cluster].ExpandVolume(h.t.Context(), cloud.VolumeID(old.id), cloud.Bytes(old.size+h.account.Size()))
		ok(h.t, err)
		old.size += h.account.Size()
	case n == 14:
		if machines := h.account.Machines(); len(machines) > 0 {
			old.attached = true
			h.account.Attached(old.id, machines[0])
		}
	case n == 15:
		h.rename(old)
	case n == 16:
		h.brokenClone(cluster, old)
	default:
		h.snapshot(cluster, old)
	}
}

// snapshot takes a snapshot, where the cloud has them, and does one of the things that can happen then.
func (h *history) snapshot(cluster string, of *thing) {
	h.t.Helper()
	c := h.clouds[cluster]
	if !c.Capabilities().Snapshots {
		return
	}
	h.number++
	s := &thing{kind: kindSnapshot, of: of.id, size: of.size, in: map[string]*entry{}}
	h.things = append(h.things, s)
	if h.rand.IntN(6) == 0 {
		var err error
		s.id, err = h.account.AddSnapshot(accounts.Snapshot{Name: fmt.Sprintf("hand-%d", h.number), Source: of.id})
		ok(h.t, err)
		return
	}
	made, err := c.CreateSnapshot(h.t.Context(), cloud.CreateSnapshotRequest{Name: fmt.Sprintf("snapshot-%d", h.number), Volume: cloud.VolumeID(of.id)})
	ok(h.t, err)
	e := h.newEntry()
	s.id, s.maker, s.needed, e.handle, e.of = string(made.ID), cluster, true, string(made.ID), of.id
	s.in[cluster] = e
	switch h.rand.IntN(5) {
	case 0:
		delete(s.in, cluster)
		s.needed = false
	case 1:
		e.handle, e.pending = "", true
	case 2: // it is restored
		h.create(cluster, h.newEntry(), cloud.Source{Snapshot: made.ID}, of.size).in[cluster].volume = true
	case 3: // it stays without its volume
		if !of.attached {
			ok(h.t, c.DeleteVolume(h.t.Context(), cloud.VolumeID(of.id)))
			h.things = slices.DeleteFunc(h.things, func(v *thing) bool { return v == of })
		}
	}
}

// brokenClone leaves the intermediate object of a clone.
func (h *history) brokenClone(cluster string, of *thing) {
	h.t.Helper()
	e := h.newEntry()
	e.pending = true
	h.alone[cluster] = append(h.alone[cluster], e)
	before := h.ids()
	h.account.Arm(brokenClones[h.account.Name()])
	_, err := h.clouds[cluster].CreateVolume(h.t.Context(), cloud.CreateVolumeRequest{
		Name: fmt.Sprintf("pvc-%d", e.uid), Size: cloud.Bytes(of.size), Source: cloud.Source{Volume: cloud.VolumeID(of.id)},
	})
	if h.account.Name() == "linode" && h.rand.IntN(2) == 0 && fault.Of(err) == fault.Uncertain {
		h.account.Disarm()
		h.account.Arm(brokenClones[h.account.Name()])
		_, err = h.clouds[cluster].CreateSnapshot(h.t.Context(), cloud.CreateSnapshotRequest{Name: fmt.Sprint("broken-", e.uid), Volume: cloud.VolumeID(of.id)})
	}
	if fault.Of(err) != fault.Uncertain {
		h.t.Fatalf("CreateVolume = %v, want that its outcome is not known", err)
	}
	h.account.Disarm()
	for id, kind := range h.ids() {
		if before[id] == "" {
			h.things = append(h.things, &thing{kind: kind, id: id, maker: cluster, temporary: true, size: of.size, of: of.id, needed: true, in: map[string]*entry{}})
		}
	}
}

// ids are the objects of the account, with their kinds.
func (h *history) ids() map[string]string {
	all := map[string]string{}
	for _, v := range h.account.Volumes() {
		all[v.ID] = kindVolume
	}
	for _, s := range h.account.Snapshots() {
		all[s.ID] = kindSnapshot
	}
	return all
}

// rename gives a volume another name, as its owner at a console would. DigitalOcean's volumes keep theirs.
func (h *history) rename(v *thing) {
	h.t.Helper()
	h.number++
	name := fmt.Sprintf("renamed-%d", h.number)
	if folder, is := h.account.(*accounts.Yandex); is {
		folder.ChangeDisk(v.id, func(d *yandex.Disk) { d.Name = name })
	}
	if l, is := h.account.(*accounts.Linode); is {
		id, err := strconv.Atoi(v.id)
		ok(h.t, err)
		ok(h.t, l.Rename(id, name))
	}
}

// L4: three clusters share an account. Whatever they have done, no report calls a volume an orphan that something needs
// or that is not its cluster's, and every orphan that a report can know is called so. HISTORIES is the number of histories in each cloud.
func TestNoHistoryMakesAnOrphanOfWhatIsNeeded(t *testing.T) {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("HISTORIES"), "6"))
	ok(t, err)
	if testing.Short() {
		n = min(n, 2)
	}
	for _, name := range accounts.Names() {
		t.Run(name, func(t *testing.T) {
			var seen tally
			for seed := range uint64(n) {
				if !t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
					h := newHistory(t, name, seed)
					for range 10 + h.rand.IntN(25) {
						h.step()
					}
					for _, cluster := range clusters {
						seen.add(h.checkReport(cluster, filepath.Join(t.TempDir(), "objects")))
					}
				}) {
					return
				}
			}
			t.Logf("%d histories, %+v", n, seen)
			if n > 2 && (seen.Orphans == 0 || seen.Unknown == 0) {
				t.Errorf("%+v: the histories prove nothing", seen)
			}
		})
	}
}
