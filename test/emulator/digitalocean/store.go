package digitalocean

import (
	"errors"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/disks"
)

// store keeps the volumes' data and gives it to this machine.
type store interface {
	Create(d disks.Disk, snapshot string) error
	Remove(d disks.Disk) error
	Grow(d disks.Disk) error
	Attach(d disks.Disk, linkDir string) error
	// Detach reports that the device was in use; then the device stays, for the sake of this machine.
	Detach(d disks.Disk) (inUse bool, err error)
	Snapshot(d disks.Disk, id string) error
	RemoveSnapshot(id string) error
	Close() error
}

// noStore is the store of an account whose volumes have no data.
type noStore struct{}

func (noStore) Create(disks.Disk, string) error   { return nil }
func (noStore) Remove(disks.Disk) error           { return nil }
func (noStore) Grow(disks.Disk) error             { return nil }
func (noStore) Detach(disks.Disk) (bool, error)   { return false, nil }
func (noStore) Snapshot(disks.Disk, string) error { return nil }
func (noStore) RemoveSnapshot(string) error       { return nil }
func (noStore) Close() error                      { return nil }

func (noStore) Attach(disks.Disk, string) error {
	return errors.New("a droplet with a device folder needs an account with a data folder")
}

const gib = 1 << 30

// disk names a volume's data as the real cloud names the device.
func disk(v volume) disks.Disk {
	return disks.Disk{ID: v.ID, Device: "scsi-0DO_Volume_" + v.Name, Size: int64(v.SizeGiB) * gib}
}

func (c *Cloud) openStore(dir string) error {
	c.disks = noStore{}
	if dir == "" {
		return nil
	}
	folder, err := disks.Open(dir)
	if err != nil {
		return fmt.Errorf("data folder %s: %w", dir, err)
	}
	c.disks = folder
	return nil
}

// DataFile returns the file with a volume's data, for a test that writes to it while it is free.
func (c *Cloud) DataFile(id string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, found := c.now.volumes[id]
	folder, kept := c.disks.(*disks.Folder)
	if !found || !kept {
		return "", fmt.Errorf("volume %s has no data", id)
	}
	return folder.Path(disk(v)), nil
}
