//go:build e2e

package e2e

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/rest"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/programs"
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

var onDigitalOcean = placeOf("DigitalOcean", programs.DigitalOcean{}, func(t *testing.T) world {
	w, _ := startDigitalOcean(t, digitalocean.Options{})
	return w
})

var onLinode = placeOf("Linode", programs.Linode{}, func(t *testing.T) world {
	w, _ := startLinode(t, linode.Options{}, linode.Linode{})
	return w
})

var onYandex = placeOf("Yandex", programs.Yandex{}, func(t *testing.T) world {
	w, _ := startYandex(t, yandex.Options{})
	return w
})

func placeOf(name string, kind programs.Emulated, start func(t *testing.T) world) place {
	size := kind.Size()
	return place{name: name, size: size, grown: 2 * size, larger: 3 * size, growsInUse: kind.GrowsInUse(), start: start}
}

// driver is the driver's name.
func (c cloud) driver() string { return strings.ToLower(c.name) + ".csi.cloudblock.io" }

// emulated is an account as its owner sees and changes it.
type emulated struct {
	programs.Emulated
	api interface {
		Exchanges() []rest.Exchange
		ResetStats()
		Arm(faults.Fault) *faults.Armed
		Disarm()
	}
	// destroy takes a machine away; its volumes' records go on naming it for as long as lag.
	destroy func(machine string, lag time.Duration)
	// on is the machine that a volume's record names, "0" for none.
	on func(volume string) string
}

// actionTime is how long an emulated cloud takes for a change where nobody says otherwise.
const actionTime = 20 * time.Millisecond

// startDigitalOcean starts an account, and both programs on it with this machine as a droplet.
func startDigitalOcean(t *testing.T, opts digitalocean.Options, flags ...string) (world, *digitalocean.Cloud) {
	t.Helper()
	dir := folder(t)
	opts.DataDir, opts.Durations = filepath.Join(dir, "account"), digitalocean.Actions(clock.Fixed(actionTime))
	account := digitalocean.Start(t, opts)
	return startEmulated(t, dir, ofDigitalOcean(account), flags), account
}

func ofDigitalOcean(account *digitalocean.Cloud) *emulated {
	return &emulated{
		Emulated: programs.DigitalOcean{Account: account}, api: account, destroy: numbered(account.RemoveDroplet),
		on: func(volume string) string {
			v, _ := account.Volume(volume)
			return strconv.Itoa(v.DropletID)
		},
	}
}

// startLinode starts an account that refuses a second change of a machine while one is under way, and both
// programs on it with this machine as a Linode of a shape.
func startLinode(t *testing.T, opts linode.Options, shape linode.Linode, flags ...string) (world, *linode.Cloud) {
	t.Helper()
	dir := folder(t)
	opts.Rules.OneChangePerLinode = true
	opts.DataDir, opts.Durations = filepath.Join(dir, "account"), linode.Each(clock.Fixed(actionTime))
	account := linode.Start(t, opts)
	return startEmulated(t, dir, ofLinode(account, shape), flags), account
}

func ofLinode(account *linode.Cloud, shape linode.Linode) *emulated {
	return &emulated{
		Emulated: programs.Linode{Account: account, Shape: shape}, api: account, destroy: numbered(account.RemoveLinode),
		on: func(volume string) string {
			id, _ := strconv.Atoi(volume) // 0 is no volume
			v, _ := account.Volume(id)
			return strconv.Itoa(v.Linode)
		},
	}
}

// numbered takes the machines' ids as the texts that they are everywhere else.
func numbered(destroy func(machine int, lag time.Duration)) func(string, time.Duration) {
	return func(machine string, lag time.Duration) {
		id, _ := strconv.Atoi(machine) // 0 is no machine
		destroy(id, lag)
	}
}

// startYandex starts a folder, and both programs on it with this machine as an instance.
func startYandex(t *testing.T, opts yandex.Options, flags ...string) (world, *yandex.Cloud) {
	t.Helper()
	dir := folder(t)
	opts.DataDir, opts.Durations = filepath.Join(dir, "account"), yandex.Each(clock.Fixed(actionTime))
	account := yandex.Start(t, opts)
	return startEmulated(t, dir, ofYandex(programs.Yandex{Account: account}), flags), account
}

func ofYandex(folder programs.Yandex) *emulated {
	account := folder.Account
	return &emulated{
		Emulated: folder, api: account,
		destroy: func(machine string, lag time.Duration) {
			// Nobody can detach a disk from an instance that is gone: its disks come free by themselves.
			account.RemoveInstance(machine, min(lag, 2*time.Second))
		},
		on: func(volume string) string {
			d, _ := account.Disk(volume)
			return cmp.Or(d.Instance, "0")
		},
	}
}

// startEmulated starts both programs on an account, with this machine as one of its own.
func startEmulated(t *testing.T, dir string, e *emulated, flags []string) world {
	t.Helper()
	pair := start(t, programs.Options{Dir: dir, Cloud: e.Emulated, Flags: flags})
	return world{Pair: pair, emulated: e, left: func(t *testing.T) []string {
		return slices.Concat(e.Left(), e.Troubles(), loopsBelow(t, dir))
	}}
}
