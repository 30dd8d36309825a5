package pool

import (
	"fmt"
	"strings"
)

// Folder tells volumes from snapshots, and is the name of the subfolder that a pool of files has for them.
type Folder string

// The folders.
const (
	Volumes   Folder = "volumes"
	Snapshots Folder = "snapshots"
)

// Ref identifies a volume or a snapshot within a pool.
type Ref struct {
	Folder Folder
	ID     ID
}

// VolumeRef is a volume.
func VolumeRef(id ID) Ref { return Ref{Volumes, id} }

// SnapshotRef is a snapshot.
func SnapshotRef(id ID) Ref { return Ref{Snapshots, id} }

// IsSnapshot tells a snapshot from a volume.
func (ref Ref) IsSnapshot() bool { return ref.Folder == Snapshots }

// ParseSource parses the Source of a record. An empty source is valid.
func ParseSource(s string) (Ref, error) {
	if s == "" {
		return Ref{}, nil
	}
	where, name, _ := strings.Cut(s, "/")
	in := Folder(where)
	if in != Volumes && in != Snapshots {
		return Ref{}, fmt.Errorf("source %q is neither a volume nor a snapshot", s)
	}
	id, err := ParseID(name)
	return Ref{in, id}, err
}
