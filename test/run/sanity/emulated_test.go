//go:build e2e

package sanity

import (
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// emulated is a cloud whose account the suite runs on, with this machine as one of its own. The account
// enforces the documented rules of names and sizes.
type emulated struct {
	name string
	size int64
	// open starts an account with its data in a folder.
	open func(t *testing.T, data string) accounts.Account
	// unsupported are the reasons that only this cloud has.
	unsupported map[string]string
}

const noSnapshots = "the cloud has no snapshots of volumes"

// takes is how long an account takes for a change.
var takes = clock.Fixed(20 * time.Millisecond)

var emulatedClouds = []emulated{
	{
		name: "DigitalOcean", size: accounts.DigitalOcean{}.Size(),
		open: func(t *testing.T, data string) accounts.Account {
			return accounts.DigitalOcean{Cloud: digitalocean.Start(t, digitalocean.Options{
				DataDir: data, Durations: digitalocean.Actions(takes),
			})}
		},
	},
	{
		name: "Linode", size: (&accounts.Linode{}).Size(), open: linodeAccount(accounts.Linode{}),
		unsupported: map[string]string{
			"Snapshot not supported":                           noSnapshots,
			"ListSnapshots not supported":                      noSnapshots,
			"GetSnapshot not supported":                        noSnapshots,
			"CreateSnapshot not supported":                     noSnapshots,
			"DeleteSnapshot not supported":                     noSnapshots,
			"SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported": noSnapshots,
		},
	},
	{
		name: "Linode with clones as snapshots", size: (&accounts.Linode{}).Size(), open: linodeAccount(accounts.Linode{KeepsClones: true}),
	},
	yandexFolder("Yandex Cloud", yandex.Rules{}, &accounts.Yandex{}),
	yandexFolder("Yandex Cloud where names repeat, over TLS", yandex.Rules{NamesRepeat: true}, &accounts.Yandex{TLS: true}),
	yandexFolder("Yandex Cloud where keys are forgotten, as a machine's account", yandex.Rules{KeysForgottenAfter: takes},
		&accounts.Yandex{MachineAccount: true}),
}

// linodeAccount opens an account for programs with such flags.
func linodeAccount(programs accounts.Linode) func(t *testing.T, data string) accounts.Account {
	return func(t *testing.T, data string) accounts.Account {
		rules := linode.Restricted()
		rules.OneChangePerLinode = true
		account := programs
		account.Cloud = linode.Start(t, linode.Options{DataDir: data, Durations: linode.Each(takes), Rules: rules})
		return &account
	}
}

// yandexFolder is a folder with its own rules, which the controller reaches in a way of its own.
func yandexFolder(name string, rules yandex.Rules, way *accounts.Yandex) emulated {
	return emulated{
		name: name, size: way.Size(),
		open: func(t *testing.T, data string) accounts.Account {
			folder := *way
			rules.Rights = yandex.DriverRights()
			folder.Cloud = yandex.Start(t, yandex.Options{DataDir: data, Durations: yandex.Each(takes), Rules: rules})
			return &folder
		},
		unsupported: map[string]string{
			"SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported": "a snapshot is in no zone: it can be restored in each",
		},
	}
}

func init() {
	for _, e := range emulatedClouds {
		filesystem, block := e.backend("filesystems", "mount"), e.backend("raw block", "block")
		filesystem.skips = growthOfExt4()
		backends = append(backends, filesystem, block)
	}
}

// backend is the two real programs on an account.
func (e emulated) backend(name, accessType string) backend {
	b := backend{
		name: e.name + " with " + name, size: e.size, accessType: accessType, start: e.start,
		unsupported: map[string]string{
			"NodeGetStorageHealth not supported":                   "a node cannot tell the health of a cloud",
			"GroupControllerService not supported":                 "there are no snapshots of groups",
			"ControllerPublishVolume.readonly field not supported": "whether a volume is read-only is decided on the node",
			"GetCapacity not supported":                            "the cloud does not say how much room it has",
			"ControllerGetVolumeHealth not supported":              "the cloud does not say how its volumes are; the node program does",
			"ControllerListVolumeHealth not supported":             "the cloud does not say how its volumes are; the node program does",
		},
	}
	maps.Copy(b.unsupported, e.unsupported)
	return b
}

func (e emulated) start(t *testing.T, dir string) (controller, node string) {
	cloud := e.open(t, filepath.Join(dir, "account"))
	t.Cleanup(func() {
		for _, what := range append(accounts.Wrong(cloud), accounts.Left(cloud)...) {
			t.Errorf("left or wrong in the account: %s", what)
		}
		stats := cloud.Stats()
		t.Logf("%d reads and %d writes reached the account", stats.Reads, stats.Writes)
	})
	return startPrograms(t, dir, cloud)
}
