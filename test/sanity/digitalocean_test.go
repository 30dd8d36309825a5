//go:build e2e

package sanity

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/programs"
)

func init() {
	filesystem, block := digitalOcean("filesystems", "mount"), digitalOcean("raw block", "block")
	filesystem.skips = growthOfExt4()
	backends = append(backends, filesystem, block)
}

// digitalOcean is the two real programs on an emulated account that enforces the documented rules of
// names and sizes, with this machine as its droplet.
func digitalOcean(name, accessType string) backend {
	return backend{
		name: "DigitalOcean with " + name, size: 1 << 30, accessType: accessType, start: startDigitalOcean,
		unsupported: map[string]string{
			"GroupControllerService not supported":                 "the cloud has no snapshots of several volumes at one moment",
			"ControllerPublishVolume.readonly field not supported": "whether a volume is read-only is decided on the node",
			"GetCapacity not supported":                            "the cloud does not say how much room it has",
			"ControllerGetVolumeHealth not supported":              "the cloud does not say how its volumes are; the node program does",
			"ControllerListVolumeHealth not supported":             "the cloud does not say how its volumes are; the node program does",
			"Modify volume not supported":                          "there is nothing to modify",
			"Modify Volume not supported":                          "there is nothing to modify",
			"ControllerModifyVolume not supported":                 "there is nothing to modify",
		},
	}
}

func startDigitalOcean(t *testing.T, dir string) (controller, node string) {
	account := emulator.Start(t, emulator.Options{
		DataDir: filepath.Join(dir, "account"), Durations: emulator.Actions(clock.Fixed(20 * time.Millisecond)),
	})
	cloud := programs.DigitalOcean{Account: account}
	t.Cleanup(func() {
		for _, what := range append(cloud.Troubles(), cloud.Left()...) {
			t.Errorf("left or wrong in the account: %s", what)
		}
		reads, writes := cloud.Calls()
		t.Logf("%d reads and %d writes reached the account", reads, writes)
	})
	return startPrograms(t, dir, cloud)
}
