package digitalocean

import (
	"slices"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/disks"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

// Options say how an emulated account begins. The zero value is an account with the usual regions, no
// droplets, operations that are over at once and no rate limit.
type Options struct {
	// Token that requests must bear; empty means DefaultToken.
	Token string
	// Seed of everything that is left to chance.
	Seed uint64
	// Speed of the account's time: 60 makes an hour pass in a minute. 0 means 1.
	Speed float64
	// InMemory starts no listener: only Client reaches the account. For testing/synctest.
	InMemory bool
	// Droplets is how many droplets there are at the start, in Region.
	Droplets int
	// Region of the first droplets; empty means DefaultRegion.
	Region string
	// Durations of the operations, Rules of the account and its rate limits.
	Durations Durations
	Rules     Rules
	Limits    []rest.Limit
	// Decide, if there is one, is asked about every request that no armed fault strikes, and says what
	// happens to it; an empty Effect means nothing.
	Decide func(Call) faults.Effect
	// DataDir is where the volumes' data is kept. It is needed for droplets with a device folder;
	// empty means that volumes have no data.
	DataDir string
	// Disks, if there is one, keeps the data instead, and decides what attaching to such a machine means.
	Disks disks.Store
	// Regions replaces the usual regions: slug to features.
	Regions map[string][]string
}

// What a test that does not care gets.
const (
	DefaultToken  = "emulator-token"
	DefaultRegion = "fra1"
)

// Call is a request as Options.Decide sees it.
type Call struct {
	Method string
	Route  string
	// Action is attach, detach or resize, or empty for what starts no action.
	Action string
	// Volume is the name of the volume that is to be changed, made or looked at, where there is one.
	Volume string
}

// RealLimits are the rate limits of the real API.
func RealLimits() []rest.Limit {
	return []rest.Limit{{Requests: 250, Window: minute}, {Requests: 5000, Window: hour}}
}

// Durations say how long operations take in the account's time. Actions run on after their answer;
// the others delay it.
type Durations struct {
	Attach         clock.Span `json:"attach"`
	Detach         clock.Span `json:"detach"`
	Resize         clock.Span `json:"resize"`
	CreateVolume   clock.Span `json:"create_volume"`
	DeleteVolume   clock.Span `json:"delete_volume"`
	CreateSnapshot clock.Span `json:"create_snapshot"`
}

// Actions returns durations where each action takes d.
func Actions(d clock.Span) Durations { return Durations{Attach: d, Detach: d, Resize: d} }

// Rules are what the account enforces. The zero value is the real API without the rules that only
// slow tests down.
type Rules struct {
	// VolumesPerDroplet is how many volumes a droplet can have; 0 means 15.
	VolumesPerDroplet int `json:"volumes_per_droplet"`
	// VolumeLimit is the account's number of volumes, CapacityLimit its GiB; 0 means no limit.
	VolumeLimit   int `json:"volume_limit"`
	CapacityLimit int `json:"capacity_limit"`
	// SnapshotInterval is how long a volume must wait for its next snapshot (the real one: 10m), and
	// SnapshotsPerVolume how many it can have (the real one: 25); 0 means no such rule.
	SnapshotInterval   clock.Span `json:"snapshot_interval"`
	SnapshotsPerVolume int        `json:"snapshots_per_volume"`
	// SnapshotNamesRepeat allows several snapshots of one name.
	SnapshotNamesRepeat bool `json:"snapshot_names_repeat"`
	// RestoreHonoursSize makes a volume from a snapshot as large as asked for, not as large as the
	// snapshot's source was.
	RestoreHonoursSize bool `json:"restore_honours_size"`
	// ChangeOnAccept shows an action's change when it is accepted, not when it has completed, and takes it back when it
	// fails.
	ChangeOnAccept bool `json:"change_on_accept"`
	// ResizeRefused refuses to resize attached volumes on every droplet.
	ResizeRefused bool `json:"resize_refused"`
	// Scopes are those of the token, separated by spaces; empty means that it has full access.
	Scopes string `json:"scopes"`
}

const defaultVolumesPerDroplet = 15

// Droplet is a machine.
type Droplet struct {
	ID     int      `json:"id"`
	Name   string   `json:"name"`
	Region string   `json:"region"`
	Tags   []string `json:"tags"`
	// DeviceDir makes the droplet this very machine (root only): each volume that is attached to it
	// becomes a loop device with a link in this folder, as udev would make it in /dev/disk/by-id.
	DeviceDir string `json:"device_dir,omitempty"`
}

// Volume is a volume as the account knows it.
type Volume struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Region      string   `json:"region"`
	Description string   `json:"description"`
	SizeGiB     int      `json:"size_gib"`
	Tags        []string `json:"tags"`
	// DropletID is 0 while the volume is free.
	DropletID int `json:"droplet_id"`
	// SnapshotID is what the volume was made from; the API does not tell.
	SnapshotID string    `json:"snapshot_id,omitempty"`
	Created    time.Time `json:"created"`
	// Content stands for the volume's data where there is none; see Cloud.SetContent.
	Content string `json:"content,omitempty"`
}

// Snapshot is a snapshot as the account knows it.
type Snapshot struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Region   string    `json:"region"`
	VolumeID string    `json:"volume_id"`
	SizeGiB  int       `json:"size_gib"`
	Tags     []string  `json:"tags"`
	Created  time.Time `json:"created"`
	// Content is that of the volume when the snapshot was made.
	Content string `json:"content,omitempty"`
}

// usualRegions has the two that tests need: with and without volumes.
func usualRegions() map[string][]string {
	features := []string{"backups", "ipv6", "metadata", "install_agent", "image_transfer"}
	regions := map[string][]string{}
	for _, slug := range []string{"ams3", "blr1", "fra1", "lon1", "nyc1", "nyc3", "sfo3", "sgp1", "syd1", "tor1"} {
		regions[slug] = append(slices.Clone(features), "storage")
	}
	regions["nyc2"] = features
	return regions
}
