package linode

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/disks"
)

// store keeps the volumes' data and gives it to this machine.
type store interface {
	Create(d disks.Disk, snapshot string) error
	Remove(d disks.Disk) error
	Rename(d disks.Disk, device string) error
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
func (noStore) Rename(disks.Disk, string) error   { return nil }
func (noStore) Grow(disks.Disk) error             { return nil }
func (noStore) Detach(disks.Disk) (bool, error)   { return false, nil }
func (noStore) Snapshot(disks.Disk, string) error { return nil }
func (noStore) RemoveSnapshot(string) error       { return nil }
func (noStore) Close() error                      { return nil }

func (noStore) Attach(disks.Disk, string) error {
	return errors.New("a Linode with a device folder needs an account with a data folder")
}

const gib = 1 << 30

// device names a volume's device as the real cloud does.
func device(label string) string { return "scsi-0Linode_Volume_" + label }

func disk(v volume) disks.Disk {
	return disks.Disk{ID: strconv.Itoa(v.ID), Device: device(v.file), Size: int64(v.SizeGiB) * gib}
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
func (c *Cloud) DataFile(id int) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, found := c.now.volumes[id]
	folder, kept := c.disks.(*disks.Folder)
	if !found || !kept {
		return "", fmt.Errorf("volume %d has no data", id)
	}
	return folder.Path(disk(v)), nil
}

// createData makes the data of a new volume, that of its source for a clone.
func (c *Cloud) createData(v volume, source *volume) error {
	if source == nil {
		return c.disks.Create(disk(v), "")
	}
	copied := strconv.Itoa(v.ID)
	if err := c.disks.Snapshot(disk(*source), copied); err != nil {
		return err
	}
	return errors.Join(c.disks.Create(disk(v), copied), c.disks.RemoveSnapshot(copied))
}

// plug gives a volume to its Linode. Only now does the Linode see another size or label.
func (c *Cloud) plug(v volume, l Linode) volume {
	v.DeviceGiB = v.SizeGiB
	if v.file != v.Label {
		c.trouble(v, c.disks.Rename(disk(v), device(v.Label)))
		v.file = v.Label
	}
	c.trouble(v, c.disks.Grow(disk(v)))
	if l.DeviceDir != "" {
		c.trouble(v, c.disks.Attach(disk(v), l.DeviceDir))
	}
	return v
}

// unplug takes a volume away from its Linode, as a cloud does: whether it is in use or not. That it was in
// use is what a test must see.
func (c *Cloud) unplug(v volume, l Linode) {
	if c.held[v.ID] > 0 {
		c.violation("detached while in use", v, l.ID)
	}
	inUse, err := c.disks.Detach(disk(v))
	if inUse {
		c.violation("detached while its device was mounted or open", v, l.ID)
	}
	c.trouble(v, err)
}
