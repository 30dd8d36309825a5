package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// memoryWorld is the reference backend with faults around it: changes take time, attaching and detaching
// go on after their caller went away, volumes have a content.
type memoryWorld struct {
	in      *injector
	log     func(format string, args ...any)
	changed func()
	ours    *memory.Cloud
	theirs  *memory.Cloud
	names   driver.Names

	end     context.Context
	stop    func()
	working sync.WaitGroup

	mu     sync.Mutex
	stamps map[cloud.VolumeID]string
	images map[cloud.SnapshotID]string
	ready  map[cloud.SnapshotID]time.Time
	known  map[cloud.VolumeID]string // the names of all volumes there ever were
	snaps  map[cloud.SnapshotID]string
	born   map[string]time.Time
	before map[cloud.VolumeID]past
	// last is closed when the last change of where a volume is attached is through.
	last map[cloud.VolumeID]chan struct{}
}

// past is where a volume was attached before the last change of that.
type past struct {
	on    []cloud.NodeID
	until time.Time
}

const (
	memoryZone = "zone-a"
	// lag is how old the state is that a stale read shows.
	lag = 45 * time.Second
)

func newMemoryWorld(in *injector, log func(format string, args ...any), changed func()) (World, error) {
	names, err := driver.NewNames("memory", profile.ScopeZone, "", nil)
	if err != nil {
		return nil, err
	}
	account := memory.NewAccount(memory.Config{PageSize: 3})
	w := &memoryWorld{
		in: in, log: log, changed: changed, names: names,
		ours: account.Cluster("ours"), theirs: account.Cluster("theirs"),
		stamps: map[cloud.VolumeID]string{}, images: map[cloud.SnapshotID]string{}, ready: map[cloud.SnapshotID]time.Time{},
		known: map[cloud.VolumeID]string{}, snaps: map[cloud.SnapshotID]string{}, born: map[string]time.Time{},
		before: map[cloud.VolumeID]past{}, last: map[cloud.VolumeID]chan struct{}{},
	}
	w.end, w.stop = context.WithCancel(context.Background())
	return w, nil
}

func (w *memoryWorld) Names() driver.Names   { return w.names }
func (w *memoryWorld) Zone() string          { return memoryZone }
func (w *memoryWorld) Least() cloud.Bytes    { return 0 }
func (w *memoryWorld) Nodes() []cloud.NodeID { return []cloud.NodeID{"node-1", "node-2"} }
func (w *memoryWorld) Tend() []string        { return nil }
func (w *memoryWorld) Complaints() []string  { return nil }

func (w *memoryWorld) Settle() time.Duration { return 15 * time.Minute }

func (w *memoryWorld) Use(cloud.VolumeID, bool) {}

func (w *memoryWorld) Kinds() []Kind {
	return []Kind{Refused, LostRequest, LostAnswer, Slow, Failed, Stale, HalfDone, Full}
}

func (w *memoryWorld) Close() {
	w.stop()
	w.working.Wait()
}

func (w *memoryWorld) Open(life context.Context, p Program) (cloud.Cloud, func(), error) {
	return &memoryClient{Cloud: w.ours, w: w, life: life, program: p}, func() {}, nil
}

// Truth reads page by page, past all faults.
func (w *memoryWorld) Truth() Truth {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.truth()
}

func (w *memoryWorld) truth() Truth {
	t := Truth{Volumes: map[cloud.VolumeID]Disk{}, Snapshots: map[cloud.SnapshotID]Image{}}
	for at := (cloud.Page{}); ; {
		list, err := w.ours.ListVolumes(context.Background(), at)
		if err != nil {
			w.log("the reference backend's list: %v", err)
			return t
		}
		for _, v := range list.Volumes {
			t.Volumes[v.ID] = Disk{Name: v.Name, Foreign: foreign(v.Tags), Size: v.Size, On: v.AttachedTo, Stamp: w.stamps[v.ID]}
		}
		if at.Token = list.Next; at.Token == "" {
			break
		}
	}
	for at := (cloud.Page{}); ; {
		list, err := w.ours.ListSnapshots(context.Background(), "", at)
		if err != nil {
			w.log("the reference backend's list: %v", err)
			return t
		}
		for _, s := range list.Snapshots {
			t.Snapshots[s.ID] = Image{Name: s.Name, Foreign: w.images[s.ID] == theirStamp, Of: s.Volume, Stamp: w.images[s.ID]}
		}
		if at.Token = list.Next; at.Token == "" {
			return t
		}
	}
}

const theirStamp = "theirs"

var theirTag = cloud.Tag{Key: "owner", Value: theirStamp}

func foreign(tags []cloud.Tag) bool { return slices.Contains(tags, theirTag) }

func (w *memoryWorld) Write(node cloud.NodeID, id cloud.VolumeID, stamp string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	vol, err := w.ours.GetVolume(context.Background(), id)
	if err != nil {
		return err
	}
	if !slices.Contains(vol.AttachedTo, node) {
		return fmt.Errorf("volume %s is not attached to %s: %w", id, node, fault.Precondition)
	}
	w.stamps[id] = stamp
	return nil
}

func (w *memoryWorld) Foreign(volume, snapshot string) (cloud.VolumeID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	vol, err := w.theirs.CreateVolume(context.Background(), cloud.CreateVolumeRequest{
		Name: volume, Size: cloud.GiB, Zones: []string{memoryZone}, Tags: []cloud.Tag{theirTag},
	})
	if err != nil {
		return "", err
	}
	w.stamps[vol.ID], w.known[vol.ID] = theirStamp, "foreign "+volume
	made, err := w.theirs.CreateSnapshot(context.Background(), cloud.CreateSnapshotRequest{Name: snapshot, Volume: vol.ID})
	if err != nil {
		return "", err
	}
	w.images[made.ID], w.snaps[made.ID] = theirStamp, "foreign "+snapshot
	return vol.ID, nil
}

// nameOf returns a name that does not depend on the order of creation.
func (w *memoryWorld) nameOf(id cloud.VolumeID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name, ok := w.known[id]; ok {
		return name
	}
	return string(id)
}

func (w *memoryWorld) snapshotName(id cloud.SnapshotID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name, ok := w.snaps[id]; ok {
		return name
	}
	return string(id)
}

// young says whether a stale read does not show the object of this name yet. The caller holds mu.
func (w *memoryWorld) young(name string) bool { return time.Since(w.born[name]) < lag }

// between returns a duration out of a range.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)+1))
}
