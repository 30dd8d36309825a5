package node_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/compat"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/node"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// askedFor is a machine without disks that stores which one it was asked for.
type askedFor struct {
	emptyMachine
	spec device.Spec
}

func (a *askedFor) Open(_ context.Context, spec device.Spec) (*device.Device, error) {
	a.spec = spec
	return nil, fmt.Errorf("no disk: %w", fault.NotFound)
}

// The vendor's node program encrypts filesystems only: it binds the disk itself for a raw block volume, whatever its class says of LUKS
// (NodeStageVolume and nodePublishVolumeBlock of linode-blockstorage-csi-driver).
func TestTheVendorsRawBlockVolumesAreNotEncrypted(t *testing.T) {
	names, err := driver.NewNames("linode", profile.ScopeRegion, "linodebs.csi.linode.com", nil)
	must(t, err)
	vendors, ours := compat.Of(names.Driver).LUKSAttributes(), names.EncodeVolumeContext(driver.VolumeContext{LUKS: true})
	for name, tc := range map[string]struct {
		attributes map[string]string
		capability *csi.VolumeCapability
		want       bool
	}{
		"the vendor's filesystem": {vendors, mountCapability("ext4", oneNode), true},
		"the vendor's raw volume": {vendors, blockCapability(oneNode), false},
		"our raw volume":          {ours, blockCapability(oneNode), true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.Mkdir(dir+"/plugins", 0o700))
			machine := &askedFor{}
			server := node.New(node.Config{Names: names, Devices: machine, Mounter: mount.New(mount.Config{Dir: dir})})
			_, err := server.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
				VolumeId: "7-pvc1", StagingTargetPath: dir + "/plugins", VolumeCapability: tc.capability, VolumeContext: tc.attributes,
				PublishContext: map[string]string{"devicePath": "/dev/disk/by-id/scsi-0Linode_Volume_pvc1"},
			})
			if machine.spec.Encrypted != tc.want {
				t.Errorf("an encrypted disk was looked for: %t, want %t (%v)", machine.spec.Encrypted, tc.want, err)
			}
		})
	}
}
