package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// A state is all volumes and snapshots at one moment. Slices inside are replaced, never written to,
// because older states share them.
type state struct {
	volumes   map[cloud.VolumeID]volume
	snapshots map[cloud.SnapshotID]snapshot
}

// A version is a state and the time since when it was true.
type version struct {
	since time.Time
	state state
}

type volume struct {
	cloud.Volume

	number  int // the order of creation, and of lists
	cluster string
	ready   time.Time
	inUse   bool
	unfit   string // why it cannot be snapshotted now
}

type snapshot struct {
	cloud.Snapshot

	number  int
	cluster string
	zone    string
	ready   time.Time
}

func newState() state {
	return state{volumes: map[cloud.VolumeID]volume{}, snapshots: map[cloud.SnapshotID]snapshot{}}
}

func (s state) clone() state {
	return state{volumes: maps.Clone(s.volumes), snapshots: maps.Clone(s.snapshots)}
}

func (s state) volume(id cloud.VolumeID) (volume, error) {
	vol, ok := s.volumes[id]
	if !ok {
		return volume{}, fmt.Errorf("volume %q: %w", id, fault.NotFound)
	}
	return vol, nil
}

func (s state) snapshot(id cloud.SnapshotID) (snapshot, error) {
	snap, ok := s.snapshots[id]
	if !ok {
		return snapshot{}, fmt.Errorf("snapshot %q: %w", id, fault.NotFound)
	}
	return snap, nil
}

// elsewhere refuses an id that another place may have made.
func (a *Account) elsewhere(id string, why error) error {
	place, _, _ := strings.Cut(id, "/")
	if place == id || !slices.Contains(a.cfg.Places, place) {
		return nil
	}
	return fmt.Errorf("%s is in %s, and only there it can be asked for: %w", id, place, why)
}

// out returns what the contract shows of a volume, in memory of its own.
func (v volume) out() cloud.Volume {
	vol := v.Volume
	vol.Parameters = slices.Clone(vol.Parameters)
	vol.AttachedTo = slices.Clone(vol.AttachedTo)
	vol.Tags = slices.Clone(vol.Tags)
	return vol
}

// show is out without what the account cannot tell.
func (a *Account) show(v volume) cloud.Volume {
	vol := v.out()
	if !a.cfg.Capabilities.Health {
		vol.Health = cloud.Health{}
	}
	return vol
}

// out returns what the contract shows of a snapshot now.
func (s snapshot) out() cloud.Snapshot {
	snap := s.Snapshot
	snap.Ready = !time.Now().Before(s.ready)
	return snap
}

// truth is the state as it is. The caller holds mu.
func (a *Account) truth() state { return a.versions[len(a.versions)-1].state }

// seen is the state that reads show now, and drops those that no read will show again. The caller
// holds mu.
func (a *Account) seen() state {
	shown := time.Now().Add(-a.cfg.ReadLag)
	at := 0
	for i, v := range a.versions {
		if !v.since.After(shown) {
			at = i
		}
	}
	a.versions = slices.Delete(a.versions, 0, at)
	return a.versions[0].state
}

// change applies the effect to the truth, all of it or, on an error, nothing. The caller holds mu.
func (a *Account) change(effect func(s state) error) error {
	next := a.truth().clone()
	if err := effect(next); err != nil {
		return err
	}
	a.versions = append(a.versions, version{since: time.Now(), state: next})
	a.seen() // drops old versions when nobody reads
	return nil
}

// number returns the next object's. The caller holds mu.
func (a *Account) number() int {
	a.last++
	return a.last
}

// room is how many more bytes fit into the zone.
func (a *Account) room(s state, zone string) cloud.Bytes {
	room := a.cfg.Space
	for _, vol := range s.volumes {
		if vol.Zone == zone {
			room -= vol.Size
		}
	}
	return room - room%a.cfg.Capabilities.SizeStep
}

// read answers from the state that reads show.
func read[T any](ctx context.Context, a *Account, call Call, look func(s state) (T, error)) (T, error) {
	var none T
	f, err := a.begin(ctx, call)
	if err != nil {
		return none, err
	}
	a.mu.Lock()
	answer, err := look(a.seen())
	a.mu.Unlock()
	if err != nil {
		return none, err
	}
	if err := f.end(ctx, call, false); err != nil {
		return none, err
	}
	return answer, nil
}

// write changes the truth and returns when the change has taken its time.
func write[T any](ctx context.Context, a *Account, call Call, effect func(s state, f Fault) (T, error)) (T, error) {
	var answer, none T
	f, err := a.begin(ctx, call)
	if err != nil {
		return none, err
	}
	a.mu.Lock()
	err = a.change(func(s state) (err error) {
		answer, err = effect(s, f)
		return err
	})
	a.mu.Unlock()
	if err != nil {
		return none, err
	}
	if err := wait(ctx, a.cfg.OperationTime); err != nil {
		return none, fmt.Errorf("%s: %w: %w", call, fault.Uncertain, err)
	}
	if err := f.end(ctx, call, true); err != nil {
		return none, err
	}
	return answer, nil
}

// wait returns after the time, or with the context's error.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// entry is something that has a place in a list.
type entry interface{ place() int }

func (v volume) place() int   { return v.number }
func (s snapshot) place() int { return s.number }

// page cuts one page out of a list. Its order is that of creation, so it is stable while others come
// and go; the token names the last entry of the page, which need not exist any more. The caller
// holds mu.
func page[E entry](a *Account, list string, all []E, want cloud.Page) (part []E, next string, err error) {
	after := 0
	if want.Token != "" {
		place, issued := a.tokens[want.Token]
		if !issued || tokenOf(list, place) != want.Token {
			return nil, "", fmt.Errorf("list of %s: %w", list, fault.StalePage)
		}
		after = place
	}
	slices.SortFunc(all, func(x, y E) int { return x.place() - y.place() })
	all = slices.DeleteFunc(all, func(e E) bool { return e.place() <= after })
	most := a.cfg.PageSize
	if want.Most > 0 {
		most = min(most, want.Most)
	}
	if len(all) <= most {
		return all, "", nil
	}
	place := all[most-1].place()
	next = tokenOf(list, place)
	a.tokens[next] = place
	return all[:most], next, nil
}

func tokenOf(list string, place int) string { return list + "-" + strconv.Itoa(place) }
