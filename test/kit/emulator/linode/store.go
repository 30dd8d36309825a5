package linode

import (
	"errors"
	"strconv"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/disks"
)

const gib = 1 << 30

// device names a volume's device as the real cloud does.
func device(label string) string { return "scsi-0Linode_Volume_" + label }

func disk(v volume) disks.Disk {
	return disks.Disk{ID: strconv.Itoa(v.ID), Device: device(v.file), Size: int64(v.SizeGiB) * gib}
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

// unplug takes a volume away from its Linode because it is detached or deleted, as a cloud does: whether it is in use or not.
// That it was in use is what a test must see.
func (c *Cloud) unplug(v volume, l Linode, done string) {
	if c.Held(v.ID) {
		c.violation(done+" while in use", v, l.ID)
	}
	inUse, err := c.disks.Detach(disk(v))
	if inUse {
		c.violation(done+" while its device was mounted or open", v, l.ID)
	}
	c.trouble(v, err)
}
