package programs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
)

// DigitalOcean is an emulated account of that cloud. It needs a data folder.
type DigitalOcean struct{ Account *digitalocean.Cloud }

var _ Emulated = DigitalOcean{}

// emulateDigitalOcean starts an account whose actions last long enough to be seen, and which enforces what
// the real one does.
func emulateDigitalOcean(ctx context.Context, dir string) (Emulated, error) {
	account, err := digitalocean.New(digitalocean.Options{
		DataDir: dir, Durations: digitalocean.Actions(clock.Fixed(300 * time.Millisecond)), Limits: digitalocean.RealLimits(),
		Rules: digitalocean.Rules{SnapshotInterval: clock.Fixed(10 * time.Minute), SnapshotsPerVolume: 25},
	})
	if err != nil {
		return nil, err
	}
	return DigitalOcean{Account: account}, account.Listen(ctx, "127.0.0.1:0")
}

// Name is what --cloud takes.
func (DigitalOcean) Name() string { return "digitalocean" }

// Controller gives the account's token in a file.
func (d DigitalOcean) Controller(dir string) ([]string, error) {
	token := filepath.Join(dir, "token")
	return []string{
		"--api-endpoint=" + d.Account.URL, "--credentials-file=" + token, "--region=" + digitalocean.DefaultRegion, "--cluster-id=test",
	}, os.WriteFile(token, []byte(d.Account.Token+"\n"), 0o600)
}

// Machine adds a droplet whose volumes are loop devices of this machine, with links in a folder of dir.
func (d DigitalOcean) Machine(dir string) ([]string, error) {
	devices := filepath.Join(dir, "by-id")
	if err := os.MkdirAll(devices, 0o755); err != nil {
		return nil, err
	}
	droplet := d.Account.AddDroplet(digitalocean.Droplet{DeviceDir: devices})
	return []string{"--metadata-endpoint=" + d.Account.Metadata(droplet), "--device-dir=" + devices}, nil
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
