package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// The clouds whose disks a guest can have. A name is what --cloud takes.
const (
	DigitalOcean = "digitalocean"
	Linode       = "linode"
	Yandex       = "yandex"
)

// Disk is a disk of a cloud: a file of the host that is plugged into guests.
type Disk struct {
	// Cloud decides how the disk shows in a guest.
	Cloud string
	// Name is the volume's name (DigitalOcean), its label (Linode) or the disk's id (Yandex, up to 20 characters).
	Name string
	// File has the content.
	File string
	// Vendor and Model, if set, stand for those of the cloud's volumes: a disk of the machine's own.
	Vendor, Model string
	// Unreadable are sectors of 512 bytes that cannot be read.
	Unreadable []int64
}

// NewDisk makes a disk that reads as zeros, with its file in dir.
func NewDisk(dir, cloud, name string, size int64) (*Disk, error) {
	d := &Disk{Cloud: cloud, Name: name, File: filepath.Join(dir, cloud+"-"+name+".raw")}
	if err := os.WriteFile(d.File, nil, 0o600); err != nil {
		return nil, err
	}
	return d, os.Truncate(d.File, size)
}

// Link is the name that udev gives to the disk in /dev/disk/by-id.
func (d *Disk) Link() string {
	switch d.Cloud {
	case DigitalOcean:
		return "scsi-0DO_Volume_" + d.Name
	case Linode:
		return "scsi-0Linode_Volume_" + d.Name
	}
	return "virtio-" + d.Name
}

// device is what QEMU plugs in, as the clouds do: Yandex Cloud gives a virtio disk its serial, the others give a
// SCSI disk a vendor-specific designator in VPD page 0x83.
func (d *Disk) device(id string) object {
	dev := object{"id": id, "drive": blockNode(id)}
	if d.Cloud == Yandex {
		dev["driver"], dev["serial"] = "virtio-blk-pci", d.Name
		return dev
	}
	dev["driver"], dev["bus"], dev["device_id"] = "scsi-hd", "scsi0.0", d.Name
	switch {
	case d.Vendor != "":
		dev["vendor"], dev["product"] = d.Vendor, d.Model
	case d.Cloud == DigitalOcean:
		dev["vendor"], dev["product"] = "DO", "Volume"
	default:
		dev["vendor"], dev["product"] = "Linode", "Volume"
	}
	return dev
}

// blockNode is the name of the block node below the device with this id.
func blockNode(id string) string { return "n-" + id }

// backend is where QEMU reads and writes the content.
func (d *Disk) backend(id string) object {
	file := object{"driver": "file", "filename": d.File, "discard": "unmap", "locking": "off"}
	if len(d.Unreadable) > 0 {
		var faults []object
		for _, sector := range d.Unreadable {
			faults = append(faults, object{"event": "none", "iotype": "read", "errno": 5, "sector": sector})
		}
		file = object{"driver": "blkdebug", "image": file, "inject-error": faults}
	}
	return object{"driver": "raw", "node-name": blockNode(id), "discard": "unmap", "file": file}
}

// Plug attaches a disk. It returns before the guest has found it; WaitForLink waits for that.
func (g *Guest) Plug(ctx context.Context, d *Disk) error {
	if g.plugged[d] != "" {
		return fmt.Errorf("disk %s is plugged in already", d.Name)
	}
	g.plugs++
	id := fmt.Sprintf("d%d", g.plugs)
	if err := g.qmp.execute(ctx, "blockdev-add", d.backend(id)); err != nil {
		return err
	}
	if err := g.qmp.execute(ctx, "device_add", d.device(id)); err != nil {
		return err
	}
	g.plugged[d] = id
	return nil
}

// Unplug detaches a disk, whatever the guest does with it, and waits until it has gone.
func (g *Guest) Unplug(ctx context.Context, d *Disk) error {
	id := g.plugged[d]
	if id == "" {
		return fmt.Errorf("disk %s is not plugged in", d.Name)
	}
	if err := g.qmp.remove(ctx, id); err != nil {
		return err
	}
	delete(g.plugged, d)
	return g.qmp.execute(ctx, "blockdev-del", object{"node-name": blockNode(id)})
}

// Throttle limits a disk that is plugged in to so many bytes and requests in a second, for reads and writes together; 0 is no limit. A
// disk of one byte in a second hangs: QEMU completes the first request and keeps the next ones.
func (g *Guest) Throttle(ctx context.Context, d *Disk, bytes, requests int64) error {
	id := g.plugged[d]
	if id == "" {
		return fmt.Errorf("disk %s is not plugged in", d.Name)
	}
	if d.Cloud == Yandex {
		id = "/machine/peripheral/" + id + "/virtio-backend" // the device with this id is the PCI proxy
	}
	return g.qmp.execute(ctx, "block_set_io_throttle", object{
		"id": id, "bps": bytes, "bps_rd": 0, "bps_wr": 0, "iops": requests, "iops_rd": 0, "iops_wr": 0,
	})
}

// Plugged reports whether the disk is plugged in.
func (g *Guest) Plugged(d *Disk) bool { return g.plugged[d] != "" }

// Grow makes a disk larger, while it is plugged in or not.
func (g *Guest) Grow(ctx context.Context, d *Disk, size int64) error {
	if id := g.plugged[d]; id != "" {
		return g.qmp.execute(ctx, "block_resize", object{"node-name": blockNode(id), "size": size})
	}
	return os.Truncate(d.File, size)
}

// WaitForLink waits until udev's link leads to a disk, and returns the name that the kernel gave it.
func (g *Guest) WaitForLink(ctx context.Context, d *Disk) (kernel string, err error) {
	out, err := g.Run(ctx, fmt.Sprintf(`
		until [ -b /dev/disk/by-id/%[1]s ]; do udevadm settle; sleep 0.1; done
		basename "$(readlink -f /dev/disk/by-id/%[1]s)"`, d.Link()))
	return firstLine(out), err
}
