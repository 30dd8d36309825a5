package yandex

import (
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/disks"
)

// link is how a machine names a device.
func link(device string) string { return "virtio-" + device }

// data names a disk's data as the real cloud names the device.
func data(d disk) disks.Disk { return disks.Disk{ID: d.ID, Device: link(d.file), Size: d.Size} }

// DataFile returns the file with a disk's data, for a test that writes to it while it is free.
func (c *Cloud) DataFile(id string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, found := c.now.disks[id]
	folder, kept := c.disks.(*disks.Folder)
	if !found || !kept {
		return "", fmt.Errorf("disk %s has no data", id)
	}
	return folder.Path(data(d)), nil
}

// plug gives a disk to its machine, under the name that the attach said.
func (c *Cloud) plug(d disk, i Instance) {
	if d.Device != d.file {
		c.trouble(d.ID, c.disks.Rename(data(d), link(d.Device)))
		d = c.changeDisk(d.ID, func(d *disk) { d.file = d.Device })
	}
	if i.DeviceDir != "" {
		c.trouble(d.ID, c.disks.Attach(data(d), i.DeviceDir))
	}
}

// unplug takes a disk away from its machine, as a cloud does: whether it is in use or not. That it was in use
// is what a test must see.
func (c *Cloud) unplug(d disk) {
	if c.Held(d.ID) {
		c.violation("detached while in use", d)
	}
	inUse, err := c.disks.Detach(data(d))
	if inUse {
		c.violation("detached while its device was mounted or open", d)
	}
	c.trouble(d.ID, err)
}
