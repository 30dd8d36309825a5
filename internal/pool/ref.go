package pool

import (
	"fmt"
	"strings"
)

// folder is a subfolder of the pool that holds images and their records.
type folder string

const (
	volumes   folder = "volumes"
	snapshots folder = "snapshots"
)

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
