package pool

import (
	"fmt"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// folder is a subfolder of the pool that holds images and their records.
type folder string

const (
	volumes   folder = "volumes"
	snapshots folder = "snapshots"
)

// snapshotPrefix distinguishes the handle of a snapshot from that of a volume.
const snapshotPrefix = "snap-"

// objectRef identifies a volume or a snapshot: the folder that holds it, and its id.
type objectRef struct {
	folder folder
	id     ID
}

func volumeRef(id ID) objectRef   { return objectRef{volumes, id} }
func snapshotRef(id ID) objectRef { return objectRef{snapshots, id} }

func (ref objectRef) isSnapshot() bool { return ref.folder == snapshots }

// file returns the path of the file of an object with this extension.
func (p *Pool) file(ref objectRef, ext string) string {
	return p.path(string(ref.folder), string(ref.id)+ext)
}

// nameOf returns the name of an object for messages.
func nameOf(node string, ref objectRef) string {
	if ref.isSnapshot() {
		return "snapshot " + SnapshotHandle(node, ref.id)
	}
	return "volume " + Handle{Node: node, ID: ref.id}.String()
}

// SnapshotHandle returns the id of a snapshot of a node as CSI callers see it.
func SnapshotHandle(node string, id ID) string { return node + "/" + snapshotPrefix + string(id) }

// ParseSnapshotHandle accepts exactly what SnapshotHandle returns for a valid node and id.
func ParseSnapshotHandle(s string) (Handle, error) {
	node, rest, _ := strings.Cut(s, "/")
	id, ok := strings.CutPrefix(rest, snapshotPrefix)
	if !ok {
		return Handle{}, fmt.Errorf("snapshot id %.200q is not <node>/%s<%d hexadecimal digits>: %w", s, snapshotPrefix, idLen, fault.InvalidArgument)
	}
	return ParseHandle(node + "/" + id)
}

// parseSource parses the Source of a record. An empty source is valid.
func parseSource(s string) (of folder, id ID, err error) {
	if s == "" {
		return "", "", nil
	}
	where, name, _ := strings.Cut(s, "/")
	of = folder(where)
	if of != volumes && of != snapshots {
		return "", "", fmt.Errorf("source %q is neither a volume nor a snapshot", s)
	}
	id, err = ParseID(name)
	return of, id, err
}
