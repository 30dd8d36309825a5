package pool

import (
	"context"
	"fmt"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// objects is what all kinds of pools share: the pool's names, and calls that differ for volumes and snapshots only in
// where they look.
type objects struct {
	label, node, location string
	of                    interface {
		list(ctx context.Context, in folder) ([]Entry, error)
		get(ctx context.Context, ref objectRef) (Entry, error)
		delete(ctx context.Context, ref objectRef, damagedToo bool) error
		Usage(ctx context.Context) (Usage, error)
	}
}

// Name returns the pool's name in classes and ids.
func (o *objects) Name() string { return o.label }

// Node returns the name of the node that the pool belongs to.
func (o *objects) Node() string { return o.node }

// Location returns where the pool is, as --local-pool has it.
func (o *objects) Location() string { return o.location }

// Handle returns where a volume or a snapshot of this pool is.
func (o *objects) Handle(id ID) Handle { return Handle{Node: o.node, Pool: o.label, ID: id} }

// name returns the name of an object for messages.
func (o *objects) name(ref objectRef) string {
	if ref.isSnapshot() {
		return "snapshot " + o.Handle(ref.id).Snapshot()
	}
	return "volume " + o.Handle(ref.id).String()
}

// Free returns how many bytes of new volumes fit. Never negative.
func (o *objects) Free(ctx context.Context) (int64, error) {
	u, err := o.of.Usage(ctx)
	return u.Free, err
}

// List returns all volumes and orphans of volumes, sorted by id, unknown files last.
func (o *objects) List(ctx context.Context) ([]Entry, error) { return o.of.list(ctx, volumes) }

// ListSnapshots is List for snapshots.
func (o *objects) ListSnapshots(ctx context.Context) ([]Entry, error) {
	return o.of.list(ctx, snapshots)
}

// Get returns the entry of a volume. fault.NotFound when there is neither a record nor its data.
func (o *objects) Get(ctx context.Context, id ID) (Entry, error) { return o.of.get(ctx, volumeRef(id)) }

// GetSnapshot is Get for a snapshot.
func (o *objects) GetSnapshot(ctx context.Context, id ID) (Entry, error) {
	return o.of.get(ctx, snapshotRef(id))
}

// Delete removes the volume with exactly this id, also if its record or its image is missing.
// fault.NotFound when there is neither, fault.Precondition when it is in use, or damaged so
// that an operator has to decide. fault.Uncertain when the disk failed in the middle; a repeated call continues. A logical volume without a record is left to the operator.
func (o *objects) Delete(ctx context.Context, id ID) error {
	return o.of.delete(ctx, volumeRef(id), false)
}

// Remove is Delete for an operator: it removes damaged volumes too. It refuses a volume in use, a record
// of a newer version, and an image that is not a regular file.
func (o *objects) Remove(ctx context.Context, id ID) error {
	return o.of.delete(ctx, volumeRef(id), true)
}

// DeleteSnapshot is Delete for a snapshot. It changes no volume and no other snapshot.
func (o *objects) DeleteSnapshot(ctx context.Context, id ID) error {
	return o.of.delete(ctx, snapshotRef(id), false)
}

// RemoveSnapshot is Remove for a snapshot.
func (o *objects) RemoveSnapshot(ctx context.Context, id ID) error {
	return o.of.delete(ctx, snapshotRef(id), true)
}

// FindByName returns the volume that was created under this name, and waits while it is made to read as zeros. fault.NotFound when there is none, fault.Precondition when there is only its record.
func (o *objects) FindByName(ctx context.Context, name string) (Entry, error) {
	return o.find(ctx, volumes, name)
}

// FindSnapshot is FindByName for a snapshot.
func (o *objects) FindSnapshot(ctx context.Context, name string) (Entry, error) {
	return o.find(ctx, snapshots, name)
}

func (o *objects) find(ctx context.Context, in folder, name string) (Entry, error) {
	for {
		entries, err := o.of.list(ctx, in)
		if err != nil {
			return Entry{}, err
		}
		found := named(entries, name)
		if len(found) == 0 {
			return Entry{}, fmt.Errorf("pool %s has none of its %s under the name %q: %w", o.location, in, name, fault.NotFound)
		}
		switch e := found[0]; e.Kind {
		case Whole:
			return e, nil
		case Unfinished: // Create continues it
			return Entry{}, fmt.Errorf("%s: %s: %w", o.name(e.ref()), e.Problem, fault.NotFound)
		case UnderWay:
			if err := wait.Sleep(ctx, zeroPoll); err != nil {
				return Entry{}, fmt.Errorf("%s: %s: %w", o.name(e.ref()), e.Problem, err)
			}
		default:
			return Entry{}, o.refuse(e)
		}
	}
}

func named(entries []Entry, name string) []Entry {
	var found []Entry
	for _, e := range entries {
		if name != "" && e.Record.Name == name {
			found = append(found, e)
		}
	}
	return found
}

// refuse returns the error for an entry that is not Whole.
func (o *objects) refuse(e Entry) error {
	if e.Kind == UnderWay {
		return fmt.Errorf("%s: %s: %w", o.name(e.ref()), e.Kind, fault.Busy)
	}
	if e.Kind == Newer {
		return fmt.Errorf("%s: %s; use that version: %w", o.name(e.ref()), e.Problem, fault.VolumeDamaged)
	}
	return fmt.Errorf("%s: %s (%s); look at it with `cloudblock-controller volumes` and put back what is missing, or remove the rest with --delete: %w",
		o.name(e.ref()), e.Kind, e.Problem, fault.VolumeDamaged)
}

// checkFree refuses a name that an object in the same folder has.
func (o *objects) checkFree(entries []Entry, in folder, name string) error {
	for _, e := range named(entries, name) {
		if e.ref().folder == in {
			return fmt.Errorf("the name %q belongs to %s: %w", name, o.name(e.ref()), fault.Conflict)
		}
	}
	return nil
}

// noCopies refuses a snapshot, or a volume with a source, in a pool that has neither.
func (o *objects) noCopies(r Record, why string) error {
	return fmt.Errorf("%s %.200q: the pool %s %s, so it has no snapshots and clones; use a class of a pool on an xfs, or a backup of the files: %w",
		strings.TrimSuffix(string(r.ref().folder), "s"), r.Name, o.location, why, fault.NoCopies)
}

// checkNode refuses a configuration without a node, which a pool that exists names itself.
func (c Config) checkNode() error {
	if c.Node == "" && c.MustExist {
		return nil
	}
	return CheckNode(c.Node)
}
