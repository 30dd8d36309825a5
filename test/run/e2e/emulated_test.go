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
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
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
	dir := folder(t)
	return startEmulated(t, dir, accounts.DigitalOcean{Cloud: digitalocean.Start(t, digitalocean.Options{
		DataDir: filepath.Join(dir, "account"), Durations: digitalocean.Actions(clock.Fixed(actionTime)),
	})})
})

var onLinode = placeOf("Linode", &accounts.Linode{}, func(t *testing.T) world {
	w, _ := startLinode(t)
	return w
})

var onYandex = placeOf("Yandex", &accounts.Yandex{}, func(t *testing.T) world {
	dir := folder(t)
	return startEmulated(t, dir, &accounts.Yandex{Cloud: yandex.Start(t, yandex.Options{
		DataDir: filepath.Join(dir, "account"), Durations: yandex.Each(clock.Fixed(actionTime)), Rules: yandex.Rules{Rights: yandex.DriverRights()},
	})})
})

func placeOf(name string, kind accounts.Account, start func(t *testing.T) world) place {
	size := kind.Size()
	return place{name: name, size: size, grown: 2 * size, larger: 3 * size, growsInUse: kind.GrowsInUse(), start: start}
}

// driver is the driver's name.
func (c cloud) driver() string { return strings.ToLower(c.name) + ".csi.cloudblock.io" }

// actionTime is how long an emulated cloud takes for a change.
const actionTime = 20 * time.Millisecond

// startLinode starts an account that refuses a second change of a machine while one is under way, and both programs on
// it with this machine as a Linode.
func startLinode(t *testing.T) (world, *linode.Cloud) {
	t.Helper()
	dir, rights := folder(t), linode.Restricted()
	account := linode.Start(t, linode.Options{
		DataDir: filepath.Join(dir, "account"), Durations: linode.Each(clock.Fixed(actionTime)),
		Rules: linode.Rules{OneChangePerLinode: true, Scopes: rights.Scopes, Permissions: rights.Permissions},
	})
	return startEmulated(t, dir, &accounts.Linode{Cloud: account}), account
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
		return slices.Concat(accounts.Left(account), accounts.Wrong(account), loops.Below(dir))
	}}
}
