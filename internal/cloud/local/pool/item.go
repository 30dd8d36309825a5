package pool

import (
	"fmt"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// shelf is a folder of the pool with images and their records.
type shelf string

const (
	volumes   shelf = "volumes"
	snapshots shelf = "snapshots"
)

// snapshotPrefix tells the id of a snapshot from that of a volume outside.
const snapshotPrefix = "snap-"

// item is a volume or a snapshot: an id on a shelf.
type item struct {
	shelf shelf
	id    ID
}

func ofVolume(id ID) item   { return item{volumes, id} }
func ofSnapshot(id ID) item { return item{snapshots, id} }

func (it item) isSnapshot() bool { return it.shelf == snapshots }

// file returns where the file of an item with this extension is.
func (p *Pool) file(it item, ext string) string { return p.path(string(it.shelf), string(it.id)+ext) }

// name returns the item's name for messages.
func (p *Pool) name(it item) string {
	if it.isSnapshot() {
		return "snapshot " + p.SnapshotHandle(it.id)
	}
	return "volume " + p.Handle(it.id).String()
}

// SnapshotHandle returns the id of a snapshot of this pool as the outside knows it.
func (p *Pool) SnapshotHandle(id ID) string { return p.node + "/" + snapshotPrefix + string(id) }

// ParseSnapshotHandle accepts exactly what SnapshotHandle returns for a valid node and id.
func ParseSnapshotHandle(s string) (Handle, error) {
	node, rest, _ := strings.Cut(s, "/")
	id, ok := strings.CutPrefix(rest, snapshotPrefix)
	if !ok {
		return Handle{}, fmt.Errorf("snapshot id %.200q is not <node>/%s<%d hexadecimal digits>: %w", s, snapshotPrefix, idLen, fault.InvalidArgument)
	}
	return ParseHandle(node + "/" + id)
}

// splitSource takes the Source of a record apart. No source at all is fine.
func splitSource(s string) (of shelf, id ID, err error) {
	if s == "" {
		return "", "", nil
	}
	where, name, _ := strings.Cut(s, "/")
	of = shelf(where)
	if of != volumes && of != snapshots {
		return "", "", fmt.Errorf("source %q is neither a volume nor a snapshot", s)
	}
	id, err = ParseID(name)
	return of, id, err
}
