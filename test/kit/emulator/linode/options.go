package linode

import (
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/disks"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

// Options say how an emulated account begins. The zero value is an account with the usual regions, no
// Linodes, operations that are over at once and no rate limit.
type Options struct {
	// Token that requests must bear; empty means DefaultToken.
	Token string
	// Seed of everything that is left to chance.
	Seed uint64
	// Speed of the account's time: 60 makes an hour pass in a minute. 0 means 1.
	Speed float64
	// InMemory starts no listener: only Client reaches the account. For testing/synctest.
	InMemory bool
	// Linodes is how many Linodes there are at the start, in Region, and Foreign how many volumes of others.
	Linodes, Foreign int
	// Region of the first Linodes; empty means DefaultRegion.
	Region string
	// Durations of the operations, Rules of the account and its rate limits.
	Durations Durations
	Rules     Rules
	Limits    []rest.Limit
	// Decide, if there is one, is asked about every request that no armed fault strikes, and says what
	// happens to it; an empty Effect means nothing.
	Decide func(Call) faults.Effect
	// DataDir is where the volumes' data is kept. It is needed for Linodes with a device folder;
	// empty means that volumes have no data.
	DataDir string
	// Disks, if there is one, keeps the data instead, and decides what attaching to such a machine means.
	Disks disks.Store
	// Regions replaces the usual regions, by id.
	Regions map[string]Region
}

// What a test that does not care gets.
const (
	DefaultToken  = "emulator-token"
	DefaultRegion = "us-ord"
)

// Call is a request as Options.Decide sees it.
type Call struct {
	Method string
	Route  string
	// Action is attach, detach, resize or clone, follow for a list of several labels, or empty for what is none of them.
	Action string
	// Volume is the label of the volume that is to be changed, made or looked at, where there is one.
	Volume string
}

// The classes of requests that have limits of their own.
const (
	ClassCreate = "create" // of a volume
	ClassList   = "list"   // of anything: GET requests with pages
)

// RealLimits are the rate limits of the real API.
func RealLimits() []rest.Limit {
	return []rest.Limit{
		{Requests: 1600, Window: time.Minute}, {Requests: 200, Window: time.Minute, Of: ClassList},
		{Requests: 100, Window: time.Minute, Of: ClassCreate},
	}
}

// Durations say how long operations run on after their answer, in the account's time.
type Durations struct {
	Create clock.Span `json:"create"`
	Attach clock.Span `json:"attach"`
	Detach clock.Span `json:"detach"`
	Resize clock.Span `json:"resize"`
	Clone  clock.Span `json:"clone"`
	// Delete is invented: Cloud Manager knows the status deleting, and no source shows a deletion that goes on, or
	// fails, after its answer.
	Delete clock.Span `json:"delete"`
}

// Each returns durations where each operation but a delete takes d.
func Each(d clock.Span) Durations {
	return Durations{Create: d, Attach: d, Detach: d, Resize: d, Clone: d}
}

// Rules are what the account enforces. The zero value is the real API as far as it is known.
type Rules struct {
	// VolumeLimit is the account's number of volumes, CapacityLimit its GiB; 0 means no limit.
	VolumeLimit   int `json:"volume_limit"`
	CapacityLimit int `json:"capacity_limit"`
	// DetachOfFreeRefused refuses to detach what is not attached.
	DetachOfFreeRefused bool `json:"detach_of_free_refused"`
	// ResizeToSameRefused refuses to resize a volume to the size that it has.
	ResizeToSameRefused bool `json:"resize_to_same_refused"`
	// AttachWhileCreatingRefused refuses to attach a volume that is not active yet.
	AttachWhileCreatingRefused bool `json:"attach_while_creating_refused"`
	// OneChangePerLinode answers "Linode busy." while another volume is being attached to the Linode or
	// detached from it.
	OneChangePerLinode bool `json:"one_change_per_linode"`
	// FailedAttachStays leaves a volume whose attach has failed at its Linode, without a device.
	FailedAttachStays bool `json:"failed_attach_stays"`
	// ReadyWhileDetaching shows io_ready until the detach is over.
	ReadyWhileDetaching bool `json:"ready_while_detaching"`
	// UpdatedStands shows the time of its create as the time of a volume's last change. When the API moves it is not
	// documented.
	UpdatedStands bool `json:"updated_stands"`
	// PlainByDefault leaves volumes unencrypted unless the request says otherwise, as the API did before 2026. Else every
	// region that has encryption encrypts by default.
	PlainByDefault bool `json:"plain_by_default"`
	// Scopes are those of the token, and Permissions those of its user by the account's roles; null: all. The scopes stand
	// in a header of each answer unless NoScopeHeaders.
	Scopes         []string `json:"scopes"`
	Permissions    []string `json:"permissions"`
	NoScopeHeaders bool     `json:"no_scope_headers"`
	// TagsRefused refuses tags in creates and updates, as if the token were a restricted user's. Invented: only the
	// routes of tags are documented to be for unrestricted users.
	TagsRefused bool `json:"tags_refused"`
	// ConfigSlots is how many devices a boot configuration has, such as 8; 0 means as many as the Linode can have. The
	// API's description says both.
	ConfigSlots int `json:"config_slots"`
	// RetryAfter adds a Retry-After header to the answers that the rate limit gives.
	RetryAfter bool `json:"retry_after"`
	// CopiesHaveTags gives a copy its source's tags. What the API does is not documented.
	CopiesHaveTags bool `json:"copies_have_tags"`
}

// Region is a place.
type Region struct {
	Capabilities []string `json:"capabilities"`
}

// The capabilities of a region that matter here.
const (
	BlockStorage           = "Block Storage"
	BlockStorageEncryption = "Block Storage Encryption"
	MetadataService        = "Metadata"
)

// Linode is a machine.
type Linode struct {
	ID     int      `json:"id"`
	Label  string   `json:"label"`
	Region string   `json:"region"`
	Tags   []string `json:"tags"`
	// MemoryMB is its memory; 0 means 8 GiB.
	MemoryMB int `json:"memory_mb"`
	// Disks is the number of local disks; 0 means two, to boot and to swap, and a negative one none.
	Disks int `json:"disks"`
	// Configs is the number of boot configurations; 0 means one.
	Configs int `json:"configs"`
	// Status as the API names it; empty means running. While it is booting, rebooting, shutting_down or
	// migrating, the Linode is busy.
	Status string `json:"status"`
	// DeviceDir makes the Linode this very machine (root only): each volume that is attached to it
	// becomes a loop device with a link in this folder, as udev would make it in /dev/disk/by-id.
	DeviceDir string `json:"device_dir,omitempty"`
}

// Volume is a volume as the account knows it.
type Volume struct {
	ID      int      `json:"id"`
	Label   string   `json:"label"`
	Region  string   `json:"region"`
	Status  string   `json:"status"`
	SizeGiB int      `json:"size_gib"`
	Tags    []string `json:"tags"`
	// Encrypted at rest.
	Encrypted bool `json:"encrypted"`
	// Linode is 0 while the volume is free. It is set before the device is there and until it has gone.
	Linode  int  `json:"linode"`
	IOReady bool `json:"io_ready"`
	// Locks are such as cannot_delete; v4beta shows them.
	Locks []string `json:"locks,omitempty"`
	// Persists says that the attachment outlives a boot of the Linode.
	Persists bool `json:"persists"`
	// DeviceGiB is the size that the Linode sees: that of the moment when the volume was attached.
	DeviceGiB int       `json:"device_gib"`
	Created   time.Time `json:"created"`
	Updated   time.Time `json:"updated"`
	// Content stands for the volume's data where there is none; see Cloud.SetContent.
	Content string `json:"content,omitempty"`
}

// usualRegions has what tests need: with and without volumes, encryption and metadata.
func usualRegions() map[string]Region {
	regions := map[string]Region{}
	for _, id := range []string{"us-ord", "us-east", "eu-central", "de-fra-2", "fr-par", "gb-lon", "au-mel"} {
		regions[id] = Region{Capabilities: []string{"Linodes", "NodeBalancers", BlockStorage, BlockStorageEncryption, MetadataService}}
	}
	// Which real regions lack these changes with time; these stand for them.
	regions["us-west"] = Region{Capabilities: []string{"Linodes", BlockStorage}}
	regions["us-den-edge-1"] = Region{Capabilities: []string{"Linodes", MetadataService}}
	return regions
}
