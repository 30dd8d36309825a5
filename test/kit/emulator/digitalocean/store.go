package digitalocean

import (
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/disks"
)

const gib = 1 << 30

// disk names a volume's data as the real cloud names the device.
func disk(v volume) disks.Disk {
	return disks.Disk{ID: v.ID, Device: "scsi-0DO_Volume_" + v.Name, Size: int64(v.SizeGiB) * gib}
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
