package pool

import (
	"context"
	"strings"
)

// NoSnapshots is the Storage.SnapshotsBy of a pool without snapshots and clones.
const NoSnapshots = "none"

// Storage is one pool of a node: a Pool, which keeps volumes as files, or a GroupPool, which keeps them as
// logical volumes of a volume group. The methods of Pool and objects state what each does.
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
}

var _, _ Storage = (*Pool)(nil), (*GroupPool)(nil)

// IsFileName reports whether a name is the Storage.FileName of this volume, whatever pool it is in.
func IsFileName(id ID, name string) bool {
	return name == id.ImageName() || name == string(id) || name == lvName(id)
}

// openStorage opens the pool at Config.Dir.
func openStorage(ctx context.Context, cfg Config) (Storage, error) {
	place, group := strings.CutPrefix(cfg.Dir, groupPrefix)
	if group {
		p, err := openGroup(ctx, cfg, place)
		if err != nil {
			return nil, err // a nil *GroupPool would be a Storage that is not nil
		}
		return p, nil
	}
	p, err := Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return p, nil
}
