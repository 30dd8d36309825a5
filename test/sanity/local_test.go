//go:build e2e

package sanity

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/test/programs"
)

func init() {
	filesystem, block := local("local with filesystems", "mount", ""), local("local with raw block", "block", "")
	if !canGrowMountedExt4() {
		filesystem.skips = map[string]string{
			"should work if node-expand is called after node-publish": "this machine's root lacks CAP_SYS_RESOURCE, without which " +
				"the kernel refuses to grow a mounted ext4; it runs with raw block",
		}
	}
	reflink := local("local on a pool with reflinks", "block", "xfs")
	for _, b := range []backend{filesystem, block} {
		b.unsupported["GroupControllerService not supported"] = "this machine's own filesystem may lack reflinks, which groups need; " +
			"they run on " + reflink.name
	}
	backends = append(backends, filesystem, block, reflink)
}

// local is the two real programs on a pool, in a folder of this machine or, if one is named, on a
// filesystem of its own.
func local(name, accessType, filesystem string) backend {
	return backend{
		name: name,
		size: 512 << 20,
		// csi-sanity makes volumes without naming a filesystem, so they are ext4.
		accessType: accessType,
		start: func(t *testing.T, dir string) (controller, node string) {
			return startPrograms(t, dir, filesystem)
		},
		unsupported: map[string]string{
			"ControllerPublishVolume not supported":             "volumes are on their node already",
			"Controller Publish, UnpublishVolume not supported": "volumes are on their node already",
			"ControllerUnpublishVolume not supported":           "volumes are on their node already",
			"ControllerExpandVolume not supported":              "the node program grows volumes",
			"Modify volume not supported":                       "there is nothing to modify",
			"Modify Volume not supported":                       "there is nothing to modify",
			"ControllerModifyVolume not supported":              "there is nothing to modify",
		},
	}
}

// mountPool makes a filesystem in a file and mounts it where the pool will be. programs.Clean undoes it.
func mountPool(t *testing.T, dir, filesystem string) {
	t.Helper()
	image, pool := filepath.Join(dir, "disk"), filepath.Join(dir, "pool")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 16<<30); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(pool, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs." + filesystem, "-q", image}, {"mount", "-o", "loop", image, pool}} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
}

func startPrograms(t *testing.T, dir, filesystem string) (controller, node string) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	t.Cleanup(func() {
		if err := programs.Clean(dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	if filesystem != "" {
		mountPool(t, dir, filesystem)
	}
	pair, err := programs.Start(ctx, programs.Options{Bin: *bin, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pair.Stop)
	sameCapabilities(ctx, t, pair)
	return "unix://" + pair.Controller.Socket(), "unix://" + pair.Node.Socket()
}

// sameCapabilities fails the test unless both programs state the same of the whole plugin, as CSI asks
// of all its instances.
func sameCapabilities(ctx context.Context, t *testing.T, pair *programs.Pair) {
	t.Helper()
	said := map[*programs.Program]*csi.GetPluginCapabilitiesResponse{}
	for _, p := range []*programs.Program{pair.Controller, pair.Node} {
		answer, err := csi.NewIdentityClient(p.Conn).GetPluginCapabilities(ctx, &csi.GetPluginCapabilitiesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		said[p] = answer
	}
	if a, b := said[pair.Controller], said[pair.Node]; !proto.Equal(a, b) {
		t.Errorf("the controller states %v of the plugin, the node program %v", a, b)
	}
}

// canGrowMountedExt4 reports whether this process has the capability that the kernel asks for.
func canGrowMountedExt4() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}
