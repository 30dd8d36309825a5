package programs

import (
	"context"
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
)

// DigitalOcean is an emulated account of that cloud. It needs a data folder.
type DigitalOcean struct{ Account *digitalocean.Cloud }

var _ Emulated = DigitalOcean{}

// emulateDigitalOcean starts an account that enforces what the real one does.
func emulateDigitalOcean(ctx context.Context, dir string) (Emulated, error) {
	account, err := digitalocean.New(digitalocean.Options{
		DataDir: dir, Durations: digitalocean.Actions(changes), Limits: digitalocean.RealLimits(),
		Rules: digitalocean.Rules{SnapshotInterval: clock.Fixed(10 * time.Minute), SnapshotsPerVolume: 25},
	})
	if err != nil {
		return nil, err
	}
	return DigitalOcean{Account: account}, account.Listen(ctx, "127.0.0.1:0")
}

// Name is what --cloud takes.
func (DigitalOcean) Name() string { return "digitalocean" }

// Size is that of the smallest volume.
func (DigitalOcean) Size() int64 { return 1 << 30 }

// GrowsInUse reports whether a machine sees a volume grow that it has.
func (DigitalOcean) GrowsInUse() bool { return true }

// Controller gives the account's token in a file.
func (d DigitalOcean) Controller(dir string) ([]string, error) {
	return webController(d.Account.Web, dir, digitalocean.DefaultRegion)
}

// Machine adds a droplet whose volumes are loop devices of this machine, with links in a folder of dir.
func (d DigitalOcean) Machine(dir string) ([]string, error) {
	return webMachine(d.Account.Web, dir, func(devices string) int {
		return d.Account.AddDroplet(digitalocean.Droplet{DeviceDir: devices})
	})
}

// Calls counts what reached the account's API.
func (d DigitalOcean) Calls() (reads, writes int) {
	stats := d.Account.Stats()
	return stats.Reads, stats.Writes
}

// Left names the volumes and snapshots of the account.
func (d DigitalOcean) Left() []string {
	var left []string
	for _, v := range d.Account.Volumes() {
		left = append(left, "volume "+v.Name)
	}
	for _, s := range d.Account.Snapshots() {
		left = append(left, "snapshot "+s.Name)
	}
	return left
}

// Troubles are the account's violations, and what broke the official description of the API.
func (d DigitalOcean) Troubles() []string {
	found := d.Account.Contract().Details
	for _, v := range d.Account.Violations() {
		found = append(found, fmt.Sprintf("%s: volume %s on droplet %d", v.What, v.VolumeName, v.Droplet))
	}
	return found
}

// Close ends the account and removes its data.
func (d DigitalOcean) Close() error { return d.Account.Close() }
