//go:build vm

package vm

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/disks"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

// plugs keeps the data of an emulated account, and plugs a volume that is attached into the guest.
type plugs struct {
	*disks.Folder
	h *host
	// plugged are the disks by the ids of their volumes.
	plugged map[string]*vm.Disk
}

func (p *plugs) Attach(d disks.Disk, _ string) error {
	is, _ := profile.Of(p.h.cloud)
	disk := &vm.Disk{Cloud: p.h.cloud, Name: strings.TrimPrefix(d.Device, is.LinkPrefix), File: p.Path(d)}
	p.plugged[d.ID] = disk
	return p.h.guest.Plug(within(p.h.t), disk)
}

func (p *plugs) Detach(d disks.Disk) (inUse bool, err error) {
	disk := p.plugged[d.ID]
	if disk == nil {
		return false, nil
	}
	delete(p.plugged, d.ID)
	return false, p.h.guest.Unplug(within(p.h.t), disk)
}

func (p *plugs) Grow(d disks.Disk) error {
	if disk := p.plugged[d.ID]; disk != nil {
		return p.h.guest.Grow(within(p.h.t), disk, d.Size)
	}
	return p.Folder.Grow(d)
}

// startAccount starts an emulated account of the host's cloud, of which the guest is a machine.
func (h *host) startAccount(t *testing.T) accounts.Account {
	t.Helper()
	folder, err := disks.Open(t.TempDir())
	must(t, err)
	store := &plugs{Folder: folder, h: h, plugged: map[string]*vm.Disk{}}
	took := clock.Fixed(100 * time.Millisecond)
	id, err := strconv.Atoi(vm.MachineID)
	must(t, err)
	const device = "the guest"
	switch h.cloud {
	case vm.DigitalOcean:
		c := digitalocean.Start(t, digitalocean.Options{Disks: store, Durations: digitalocean.Actions(took)})
		c.AddDroplet(digitalocean.Droplet{ID: id, DeviceDir: device})
		return accounts.DigitalOcean{Cloud: c}
	case vm.Linode:
		c := linode.Start(t, linode.Options{Disks: store, Durations: linode.Each(took)})
		c.AddLinode(linode.Linode{ID: id, DeviceDir: device})
		return &accounts.Linode{Cloud: c}
	}
	c := yandex.Start(t, yandex.Options{Disks: store, Durations: yandex.Each(took)})
	c.AddInstance(yandex.Instance{ID: vm.InstanceID, DeviceDir: device})
	return &accounts.Yandex{Cloud: c}
}

// E5: a volume of an emulated account goes through its life: the controller program asks the cloud, which plugs a disk into the
// machine, where the node program finds it. It grows while it is detached, and the next stage grows its filesystem.
func TestWholeLife(t *testing.T) {
	notShort(t)
	onEachCloud(t, func(t *testing.T, h *host) {
		account := h.startAccount(t)
		pair, err := programs.StartController(within(t), programs.Options{Bin: filepath.Dir(config.Node), Dir: t.TempDir(), Cloud: account})
		must(t, err)
		t.Cleanup(pair.Stop)
		controller := csi.NewControllerClient(pair.Controller.Conn)
		info, err := h.NodeGetInfo(within(t), &csi.NodeGetInfoRequest{})
		must(t, err)

		size := account.Size()
		v := h.volumeNamed("pvc-whole-life", "ext4")
		made, err := controller.CreateVolume(within(t), &csi.CreateVolumeRequest{
			Name: v.disk.Name, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapabilities: []*csi.VolumeCapability{v.capability()},
		})
		must(t, err)
		v.id = made.GetVolume().GetVolumeId()
		attach := func() {
			t.Helper()
			at, err := controller.ControllerPublishVolume(within(t), &csi.ControllerPublishVolumeRequest{
				VolumeId: v.id, NodeId: info.GetNodeId(), VolumeCapability: v.capability(), VolumeContext: made.GetVolume().GetVolumeContext(),
			})
			must(t, err)
			v.context = h.contextOf(made.GetVolume().GetVolumeContext(), at.GetPublishContext())
			v.ok(v.stage, v.publish)
		}
		detach := func() {
			t.Helper()
			v.down()
			_, err := controller.ControllerUnpublishVolume(within(t), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: info.GetNodeId()})
			must(t, err)
		}
		attach()
		want, before := v.fill("data", mib), v.usable()
		detach()
		_, err = controller.ControllerExpandVolume(within(t), &csi.ControllerExpandVolumeRequest{
			VolumeId: v.id, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * size}, VolumeCapability: v.capability(),
		})
		must(t, err)
		attach()
		if got, after := v.sum("data"), v.usable(); got != want || after < before+size*9/10 {
			t.Errorf("the file has checksum %s, want %s; the filesystem has %d bytes and had %d", got, want, after, before)
		}
		detach()
		_, err = controller.DeleteVolume(within(t), &csi.DeleteVolumeRequest{VolumeId: v.id})
		must(t, err)
		if left := append(accounts.Left(account), accounts.Wrong(account)...); len(left) > 0 {
			t.Errorf("left or wrong: %v", left)
		}
	})
}

// contextOf reads what the controller program gave to the node.
func (h *host) contextOf(volume, attach map[string]string) driver.VolumeContext {
	h.t.Helper()
	names := h.names()
	v, err := names.DecodeVolumeContext(volume)
	must(h.t, err)
	p, err := names.DecodePublishContext("volume", attach)
	must(h.t, err)
	return v.With(p)
}
