package pool

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Objects is the part that all kinds of pools share: the pool's names, and the calls that are the same for volumes and snapshots.
type Objects struct {
	label, node, location string
	calls                 Calls
}

// Calls are the operations of one kind of pool on its volumes and snapshots.
type Calls struct {
	List   func(ctx context.Context, in Folder) ([]Entry, error)
	Get    func(ctx context.Context, ref Ref) (Entry, error)
	Delete func(ctx context.Context, ref Ref, damagedToo bool) error
	Usage  func(ctx context.Context) (Usage, error)
}

// NewObjects returns the Objects of a pool at this location. SetOwner completes it once the pool was read.
func NewObjects(cfg Config, location string, calls Calls) Objects {
	return Objects{label: cfg.Name, location: location, calls: calls}
}

// SetOwner sets the pool's node and name, which the pool itself has stored.
func (o *Objects) SetOwner(node, name string) { o.node, o.label = node, name }

// ZeroPoll is the time between two reads of a volume that another process is zeroing. A read is two commands of LVM.
const ZeroPoll = 2 * time.Second

// Name returns the pool's name in classes and ids.
func (o *Objects) Name() string { return o.label }

// Node returns the name of the node that the pool belongs to.
func (o *Objects) Node() string { return o.node }

// Location returns the folder or lvm:VG of --local-pool.
func (o *Objects) Location() string { return o.location }

// Handle returns the handle of a volume or a snapshot of this pool.
func (o *Objects) Handle(id ID) Handle { return Handle{Node: o.node, Pool: o.label, ID: id} }

// Describe returns the name of an object for messages.
func (o *Objects) Describe(ref Ref) string {
	if ref.IsSnapshot() {
		return "snapshot " + o.Handle(ref.ID).Snapshot()
	}
	return "volume " + o.Handle(ref.ID).String()
}

// Free returns the available space for new volumes in bytes. It is never negative.
func (o *Objects) Free(ctx context.Context) (int64, error) {
	u, err := o.calls.Usage(ctx)
	return u.Free, err
}

// List returns all volumes and orphans of volumes, sorted by id, unknown files last.
func (o *Objects) List(ctx context.Context) ([]Entry, error) { return o.calls.List(ctx, Volumes) }

// ListSnapshots is List for snapshots.
func (o *Objects) ListSnapshots(ctx context.Context) ([]Entry, error) {
	return o.calls.List(ctx, Snapshots)
}

// Get returns the entry of a volume; fault.NotFound if there is neither its record nor its data.
func (o *Objects) Get(ctx context.Context, id ID) (Entry, error) {
	return o.calls.Get(ctx, VolumeRef(id))
}

// GetSnapshot is Get for a snapshot.
func (o *Objects) GetSnapshot(ctx context.Context, id ID) (Entry, error) {
	return o.calls.Get(ctx, SnapshotRef(id))
}

// Delete deletes the volume with exactly this id, even if its record or its image is missing. fault.NotFound if both are,
// fault.Precondition if it is in use, or if it is damaged or a logical volume without a record, which an operator has to decide.
// fault.Uncertain if the disk failed during the delete; a repeated call continues it.
func (o *Objects) Delete(ctx context.Context, id ID) error {
	return o.calls.Delete(ctx, VolumeRef(id), false)
}

// Remove is Delete for an operator: it deletes damaged volumes too. It refuses a volume in use, a record of a newer version, and an
// image that is not a regular file.
func (o *Objects) Remove(ctx context.Context, id ID) error {
	return o.calls.Delete(ctx, VolumeRef(id), true)
}

// DeleteSnapshot is Delete for a snapshot. It changes no volume and no other snapshot.
func (o *Objects) DeleteSnapshot(ctx context.Context, id ID) error {
	return o.calls.Delete(ctx, SnapshotRef(id), false)
}

// RemoveSnapshot is Remove for a snapshot.
func (o *Objects) RemoveSnapshot(ctx context.Context, id ID) error {
	return o.calls.Delete(ctx, SnapshotRef(id), true)
}

// FindByName returns the volume with this name, and waits while it is being zeroed. fault.NotFound if there is none,
// fault.Precondition if there is only its record.
func (o *Objects) FindByName(ctx context.Context, name string) (Entry, error) {
	return o.find(ctx, Volumes, name)
}

// FindSnapshot is FindByName for a snapshot.
func (o *Objects) FindSnapshot(ctx context.Context, name string) (Entry, error) {
	return o.find(ctx, Snapshots, name)
}

func (o *Objects) find(ctx context.Context, in Folder, name string) (Entry, error) {
	for {
		entries, err := o.calls.List(ctx, in)
		if err != nil {
			return Entry{}, err
		}
		found := Named(entries, name)
		if len(found) == 0 {
			return Entry{}, fmt.Errorf("pool %s has none of its %s under the name %q: %w", o.location, in, name, fault.NotFound)
		}
		switch e := found[0]; e.Kind {
		case Whole:
			return e, nil
		case Unfinished: // Create continues it
			return Entry{}, fmt.Errorf("%s: %s: %w", o.Describe(e.Ref()), e.Problem, fault.NotFound)
		case UnderWay:
			if err := wait.Sleep(ctx, ZeroPoll); err != nil {
				return Entry{}, fmt.Errorf("%s: %s: %w", o.Describe(e.Ref()), e.Problem, err)
			}
		default:
			return Entry{}, o.Refuse(e)
		}
	}
}

// Named returns the entries with this name.
func Named(entries []Entry, name string) []Entry {
	var found []Entry
	for _, e := range entries {
		if name != "" && e.Record.Name == name {
			found = append(found, e)
		}
	}
	return found
}

// Refuse returns the error for an entry that is not Whole.
func (o *Objects) Refuse(e Entry) error {
	if e.Kind == UnderWay {
		return fmt.Errorf("%s: %s: %w", o.Describe(e.Ref()), e.Kind, fault.Busy)
	}
	if e.Kind == Newer {
		return fmt.Errorf("%s: %s; use that version: %w", o.Describe(e.Ref()), e.Problem, fault.VolumeDamaged)
	}
	advice := "otherwise --delete removes the rest"
	if e.Size > 0 {
		advice = "its data is there, and --delete would remove it"
	}
	return fmt.Errorf("%s: %s (%s); look at it with `cloudblock-controller volumes` and put back what is missing; %s: %w",
		o.Describe(e.Ref()), e.Kind, e.Problem, advice, fault.VolumeDamaged)
}

// CheckFree refuses a name that another volume, or another snapshot, has or may have.
func (o *Objects) CheckFree(entries []Entry, in Folder, name string) error {
	for _, e := range Named(entries, name) {
		if e.Ref().Folder == in {
			return fmt.Errorf("the name %q belongs to %s: %w", name, o.Describe(e.Ref()), fault.Conflict)
		}
	}
	for _, e := range entries {
		if e.Unread && e.Ref().Folder == in {
			return fmt.Errorf("the name %q may belong to %s, whose record cannot be read (%s): %w", name, o.Describe(e.Ref()), e.Problem, fault.Unavailable)
		}
	}
	return nil
}

// NoCopies returns the refusal of a snapshot, or of a volume with a source, in a pool that supports neither.
func (o *Objects) NoCopies(r Record, why string) error {
	return fmt.Errorf("%s %.200q: the pool %s %s, so it has no snapshots and clones; use a class of a pool on an xfs, or a backup of the files: %w",
		strings.TrimSuffix(string(r.Ref().Folder), "s"), r.Name, o.location, why, fault.NoCopies)
}

// NoBlocks returns the refusal of ReadBlocks in a pool whose snapshots, if it has any, share no blocks.
func (o *Objects) NoBlocks() error {
	return fmt.Errorf("the pool %s is not on an xfs with reflinks, so it does not know which blocks of a snapshot have changed; back up the whole volume: %w",
		o.location, fault.NoCopies.Explain(fault.Precondition))
}
