package pool

// Kind is the state of an entry.
type Kind string

// The kinds. Everything but Whole, UnderWay and Newer is an orphan: it is reported, and removed only by id.
const (
	// Whole is a volume or a snapshot with its record and its image.
	Whole Kind = "volume"
	// UnderWay is a volume that a running process is zeroing.
	UnderWay Kind = "create under way"
	// Unfinished is a volume of an interrupted create, whose id was not returned. The next create for its name completes it.
	Unfinished Kind = "unfinished create"
	// NoRecord is an image whose record is missing.
	NoRecord Kind = "image without record"
	// NoImage is a record whose image is missing.
	NoImage Kind = "record without image"
	// Newer is an image with a record that only a newer version of this program can read.
	Newer Kind = "of a newer version"
	// Damaged is a record that cannot be read, or an image that does not fit it.
	Damaged Kind = "damaged"
	// Unknown is a file that no version of this program creates. The pool never removes it.
	Unknown Kind = "unknown file"
)

// Entry is a volume, a snapshot, or an orphan in the pool.
type Entry struct {
	// ID is empty for an Unknown file.
	ID   ID
	Kind Kind
	// Snapshot tells a snapshot from a volume.
	Snapshot bool
	// File is the base name of the image, or of the unknown file.
	File string
	// Record is set for Whole, UnderWay and NoImage, and where only the image is Damaged; for Newer it
	// has only the name.
	Record Record
	// Size and Allocated are the image's length and how many bytes of it are allocated.
	Size, Allocated int64
	// Problem describes what is wrong with an orphan.
	Problem string
	// Unread: the record cannot be read now, so any name may be the entry's.
	Unread bool
}

// Ref identifies the entry's volume or snapshot.
func (e Entry) Ref() Ref {
	if e.Snapshot {
		return SnapshotRef(e.ID)
	}
	return VolumeRef(e.ID)
}
