package pool

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// State is the phase of a volume or a snapshot.
type State string

// The states of a record. Under the lock only recover reads a record in state Creating.
const (
	// Creating lasts while one process holds the pool's lock.
	Creating State = "creating"
	Ready    State = "ready"
)

// Pair is a tag: a name with a value.
type Pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Record is the metadata of a volume or a snapshot.
type Record struct {
	ID ID `json:"id"`
	// Name is the requested name; unique within the folder.
	Name string `json:"name"`
	// Size is the volume's size in bytes. The image has exactly this many, unless GrowTo is set.
	Size int64 `json:"size"`
	// GrowTo is the target size of a running or interrupted growth; else 0.
	GrowTo  int64     `json:"growTo,omitempty"`
	State   State     `json:"state"`
	Created time.Time `json:"created"`
	// Source is what the content was copied from; empty for a volume that was created blank, and for a
	// snapshot.
	Source string `json:"source,omitempty"`
	// BlockSize is the logical block size of the volume's device. It never changes, also not in a copy: a
	// filesystem that was made on 512 cannot be mounted on 4096. 0 is the kernel's default.
	BlockSize int `json:"blockSize,omitempty"`
	// Volume, of a snapshot, is its source volume, which may be deleted.
	Volume ID     `json:"volume,omitempty"`
	Tags   []Pair `json:"tags,omitempty"`
}

// Tag returns the value of a tag, or "".
func (r Record) Tag(name string) string {
	for _, t := range r.Tags {
		if t.Name == name {
			return t.Value
		}
	}
	return ""
}

// maxNameLen is far above the limit of CSI.
const maxNameLen = 1024

// CheckObjectName refuses what cannot be the name of a volume or a snapshot.
func CheckObjectName(name string) error {
	switch {
	case name == "":
		return errors.New("empty name")
	case len(name) > maxNameLen:
		return fmt.Errorf("name of %d bytes is longer than %d", len(name), maxNameLen)
	case !utf8.ValidString(name):
		// JSON replaces invalid bytes, so two names could become equal.
		return fmt.Errorf("name %q is not UTF-8", name)
	}
	return nil
}

// Ref identifies the record's volume or snapshot.
func (r Record) Ref() Ref {
	if r.Volume != "" {
		return SnapshotRef(r.ID)
	}
	return VolumeRef(r.ID)
}

// SourceOf returns the source of a volume.
func (r Record) SourceOf() From {
	switch ref, _ := ParseSource(r.Source); ref.Folder {
	case Volumes:
		return From{Volume: ref.ID}
	case Snapshots:
		return From{Snapshot: ref.ID}
	}
	return From{}
}
