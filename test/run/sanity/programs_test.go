//go:build e2e

package sanity

import (
	"context"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// startPrograms starts the two real programs on a cloud, nil for `local`, and returns their sockets.
func startPrograms(t *testing.T, dir string, cloud programs.Cloud) (controller, node string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cleanAfter(t, dir)
	pair, err := programs.Start(ctx, programs.Options{Bin: *bin, Dir: dir, Cloud: cloud})
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

// cleanAfter takes mounts and loop devices below dir away at the end, whatever happened.
func cleanAfter(t *testing.T, dir string) {
	t.Helper()
	t.Cleanup(func() {
		if err := programs.Clean(dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
}

// growthOfExt4 is the spec that this machine may be unable to run with filesystems, with the reason.
func growthOfExt4() map[string]string {
	if canGrowMountedExt4() {
		return nil
	}
	return map[string]string{
		"should work if node-expand is called after node-publish": "this machine's root lacks CAP_SYS_RESOURCE, without which " +
			"the kernel refuses to grow a mounted ext4; it runs with raw block",
	}
}

// canGrowMountedExt4 reports whether this process has the capability that the kernel asks for.
func canGrowMountedExt4() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}
