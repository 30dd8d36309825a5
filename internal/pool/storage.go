package pool

import (
	"context"
)

// NoSnapshots is the Storage.SnapshotsBy of a pool without snapshots and clones.
const NoSnapshots = "none"

// Storage is one pool of a node: a files.Pool or an lvm.Pool. Their methods and those of Objects state what each does.
type Storage interface {
	Name() string
	Node() string
	Location() string
	Handle(id ID) Handle
	// Dir is the folder with the pool's lock.
	Dir() string
	// SnapshotsBy is how the pool makes snapshots and clones, or NoSnapshots.
	SnapshotsBy() string
	// FileName is the base name of what has a volume's bytes: a file or a logical volume.
	FileName(id ID) string

	Check(ctx context.Context) error
	Free(ctx context.Context) (int64, error)
	Usage(ctx context.Context) (Usage, error)

	Create(ctx context.Context, v NewVolume) (Record, error)
	FindByName(ctx context.Context, name string) (Entry, error)
	Get(ctx context.Context, id ID) (Entry, error)
	List(ctx context.Context) ([]Entry, error)
	InUse(ctx context.Context, e Entry) (string, error)
	Delete(ctx context.Context, id ID) error
	Remove(ctx context.Context, id ID) error

	CreateSnapshot(ctx context.Context, req NewSnapshot) (Record, error)
	FindSnapshot(ctx context.Context, name string) (Entry, error)
	GetSnapshot(ctx context.Context, id ID) (Entry, error)
	ListSnapshots(ctx context.Context) ([]Entry, error)
	DeleteSnapshot(ctx context.Context, id ID) error
	RemoveSnapshot(ctx context.Context, id ID) error
	ReadBlocks(ctx context.Context, req BlocksRequest, send func(size int64, blocks []Range) error) error
}

// Usage is what a pool holds.
type Usage struct {
	// Size is that of the filesystem or the volume group. Free is how many bytes of new volumes fit. Reserved is what existing
	// volumes and snapshots may still allocate.
	Size, Free, Reserved int64
	// Entries are the volumes, snapshots and orphans.
	Entries []Entry
}
