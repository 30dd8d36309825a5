//go:build e2e

package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// cloud is a place that is an emulated account.
type cloud struct {
	place
	// device is how the names of a volume's device begin, before the volume's own.
	device string
	// ids are those that this cloud cannot have made, besides those that none can, with a real one.
	ids func(real string) map[string]string
}

// clouds are the emulated ones.
var clouds = []cloud{
	{
		place:  onDigitalOcean,
		device: "scsi-0DO_Volume_",
		ids: func(real string) map[string]string {
			return map[string]string{"is a number": "1", "is upper case": strings.ToUpper(real)}
		},
	},
	{
		place:  onLinode,
		device: "scsi-0Linode_Volume_",
		ids: func(real string) map[string]string {
			return map[string]string{
				"is zero": "0", "begins with a zero": "0" + real, "has a sign": "+" + real, "is hexadecimal": "0x186a1",
				"is larger than 64 bits": "18446744073709651617", "is larger than any number": strings.Repeat("9", 40),
				"is a UUID": "00000000-0000-4000-8000-000000000000", "has a label that climbs": real + "-../../volumes/1",
			}
		},
	},
	{
		place:  onYandex,
		device: "virtio-",
		ids: func(real string) map[string]string {
			return map[string]string{
				"is upper case": strings.ToUpper(real), "is a UUID": "00000000-0000-4000-8000-000000000000", "has a part": real + "-1",
			}
		},
	},
}

var onDigitalOcean = placeOf("DigitalOcean", accounts.DigitalOcean{}, func(t *testing.T) world {
	return startDigitalOcean(t, digitalocean.Options{})
})

var onLinode = placeOf("Linode", &accounts.Linode{}, func(t *testing.T) world {
	w, _ := startLinode(t, linode.Options{}, linode.Linode{})
	return w
})

var onYandex = placeOf("Yandex", &accounts.Yandex{}, func(t *testing.T) world {
	return startYandex(t, yandex.Options{})
})

func placeOf(name string, kind accounts.Account, start func(t *testing.T) world) place {
	size := kind.Size()
	return place{name: name, size: size, grown: 2 * size, larger: 3 * size, growsInUse: kind.GrowsInUse(), start: start}
}

// driver is the driver's name.
func (c cloud) driver() string { return strings.ToLower(c.name) + ".csi.cloudblock.io" }

// actionTime is how long an emulated cloud takes for a change where nobody says otherwise.
const actionTime = 20 * time.Millisecond

// startDigitalOcean starts an account, and both programs on it with this machine as a droplet.
func startDigitalOcean(t *testing.T, opts digitalocean.Options) world {
	t.Helper()
	dir := folder(t)
	opts.DataDir, opts.Durations = filepath.Join(dir, "account"), digitalocean.Actions(clock.Fixed(actionTime))
	return startEmulated(t, dir, accounts.DigitalOcean{Cloud: digitalocean.Start(t, opts)})
}

// startLinode starts an account that refuses a second change of a machine while one is under way, and both
// programs on it with this machine as a Linode of a shape.
func startLinode(t *testing.T, opts linode.Options, shape linode.Linode) (world, *linode.Cloud) {
	t.Helper()
	dir := folder(t)
	opts.Rules.OneChangePerLinode = true
	rights := linode.Restricted()
	opts.Rules.Scopes, opts.Rules.Permissions = rights.Scopes, rights.Permissions
	opts.DataDir, opts.Durations = filepath.Join(dir, "account"), linode.Each(clock.Fixed(actionTime))
	account := linode.Start(t, opts)
	return startEmulated(t, dir, &accounts.Linode{Cloud: account, Shape: shape}), account
}

// startYandex starts a folder, and both programs on it with this machine as an instance.
func startYandex(t *testing.T, opts yandex.Options) world {
	t.Helper()
	dir := folder(t)
	opts.DataDir, opts.Durations = filepath.Join(dir, "account"), yandex.Each(clock.Fixed(actionTime))
	opts.Rules.Rights = yandex.DriverRights()
	return startEmulated(t, dir, &accounts.Yandex{Cloud: yandex.Start(t, opts)})
}

// startEmulated starts both programs on an account, with this machine as one of its own.
func startEmulated(t *testing.T, dir string, account accounts.Account) world {
	t.Helper()
	pair := start(t, programs.Options{Dir: dir, Cloud: account})
	t.Cleanup(func() {
		if wrong := accounts.Wrong(account); t.Failed() && len(wrong) > 0 {
			t.Logf("wrong in the account: %q", wrong)
		}
	})
	return world{Pair: pair, account: account, left: func(t *testing.T) []string {
		return slices.Concat(accounts.Left(account), accounts.Wrong(account), loopsBelow(t, dir))
	}}
}
