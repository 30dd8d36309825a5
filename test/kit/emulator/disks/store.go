package disks

import (
	"errors"
	"fmt"
)

// Store keeps the volumes' data and gives it to this machine.
type Store interface {
	Create(d Disk, snapshot string) error
	Remove(d Disk) error
	Rename(d Disk, device string) error
	Grow(d Disk) error
	Attach(d Disk, linkDir string) error
	// Detach reports that the device was in use; then the device stays, for the sake of this machine.
	Detach(d Disk) (inUse bool, err error)
	Snapshot(d Disk, id string) error
	RemoveSnapshot(id string) error
	Close() error
}

// OpenStore returns the store that is given. If none is, it returns a folder below dir, or for an empty dir
// the store of volumes that have no data.
func OpenStore(given Store, dir string) (Store, error) {
	switch {
	case given != nil:
		return given, nil
	case dir == "":
		return none{}, nil
	}
	folder, err := Open(dir)
	if err != nil {
		return nil, fmt.Errorf("data folder %s: %w", dir, err)
	}
	return folder, nil
}

type none struct{}

func (none) Create(Disk, string) error   { return nil }
func (none) Remove(Disk) error           { return nil }
func (none) Rename(Disk, string) error   { return nil }
func (none) Grow(Disk) error             { return nil }
func (none) Detach(Disk) (bool, error)   { return false, nil }
func (none) Snapshot(Disk, string) error { return nil }
func (none) RemoveSnapshot(string) error { return nil }
func (none) Close() error                { return nil }

func (none) Attach(Disk, string) error {
	return errors.New("a machine with a device folder needs an account with a data folder")
}
