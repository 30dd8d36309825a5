package yandex

import (
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/disks"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// Options say how an emulated folder begins. The zero value is a folder with the usual zones, no instances,
// and operations that are over at once.
type Options struct {
	// Token that is good for ever; empty means DefaultToken.
	Token string
	// Seed of everything that is left to chance.
	Seed uint64
	// Speed of the folder's time: 60 makes an hour pass in a minute. 0 means 1.
	Speed float64
	// InMemory starts no listener: only Dial reaches the folder. For testing/synctest.
	InMemory bool
	// Instances is how many instances there are at the start, in Zone.
	Instances int
	// Zone of the first instances; empty means DefaultZone.
	Zone string
	// Durations of the operations and Rules of the folder.
	Durations Durations
	Rules     Rules
	// Decide, if there is one, is asked about every call that no armed fault strikes, and says what happens
	// to it; an empty Effect means nothing.
	Decide func(Call) faults.Effect
	// DataDir is where the disks' data is kept. It is needed for instances with a device folder; empty means
	// that disks have no data.
	DataDir string
	// Disks, if there is one, keeps the data instead, and decides what attaching to such a machine means.
	Disks disks.Store
	// Zones replaces the usual zones, by id.
	Zones map[string]Zone
}

// What a test that does not care gets.
const (
	DefaultToken  = "emulator-token"
	DefaultZone   = "ru-central1-a"
	DefaultFolder = "b1gemulated00folder0"
	DefaultCloud  = "b1gemulated000cloud0"
)

// Call is a call as Options.Decide sees it.
type Call struct {
	// Route is the service and its method, such as "InstanceService/AttachDisk".
	Route string
	// Disk is the name of the disk that is to be changed, made or looked at, where there is one.
	Disk string
	// Write says that the call changes something.
	Write bool
}

// Durations say how long operations run on after their answer, in the folder's time.
type Durations struct {
	Create         clock.Span `json:"create"`
	Delete         clock.Span `json:"delete"`
	Attach         clock.Span `json:"attach"`
	Detach         clock.Span `json:"detach"`
	Resize         clock.Span `json:"resize"`
	Update         clock.Span `json:"update"` // of anything but the size
	Snapshot       clock.Span `json:"snapshot"`
	DeleteSnapshot clock.Span `json:"delete_snapshot"`
	Restore        clock.Span `json:"restore"` // a create from a snapshot
	Relocate       clock.Span `json:"relocate"`
}

// Each returns durations where each operation takes d.
func Each(d clock.Span) Durations {
	return Durations{
		Create: d, Delete: d, Attach: d, Detach: d, Resize: d, Update: d, Snapshot: d, DeleteSnapshot: d, Restore: d, Relocate: d,
	}
}

// Rules are what the folder enforces. The zero value is the real API as far as it is known.
type Rules struct {
	// NamesRepeat allows several disks, or snapshots, with one name. Invented: no public source says.
	NamesRepeat bool `json:"names_repeat"`
	// KeysForgottenAfter is when an idempotency key is forgotten; 0 means with its operation. A known key with another
	// request is answered with the first one's operation. Invented, both.
	KeysForgottenAfter clock.Span `json:"keys_forgotten_after"`
	// ResizeRefused refuses to resize disks that are attached to an instance that is not stopped.
	ResizeRefused bool `json:"resize_refused"`
	// ChangeOnAccept shows an operation's change when it is accepted, not when it is done. Invented.
	ChangeOnAccept bool `json:"change_on_accept"`
	// ChangeHalfway shows the change of an attach, detach, resize or relocation when half of the operation's time is over; one that
	// fails takes it back at its end. Invented.
	ChangeHalfway bool `json:"change_halfway"`
	// OperationsApart keeps attaches and detaches out of the list of a disk's operations: they are the instance's. Invented:
	// the list of an instance shows both, and of that of a disk no public source says.
	OperationsApart bool `json:"operations_apart"`
	// PagesByNumber makes a list's token stand for a number of elements and not for the last one, so that what comes
	// and goes between two pages shifts the next. Invented.
	PagesByNumber bool `json:"pages_by_number"`
	// ArrivesDone answers with an operation that is done if it takes no time; else the first read finds it so. Invented.
	ArrivesDone bool `json:"arrives_done"`
	// BootDisksElsewhere keeps the disks that instances boot from out of the list, as if the instances were in
	// another folder.
	BootDisksElsewhere bool `json:"boot_disks_elsewhere"`
	// FreshNotFound is how often a new operation is not found, for some seconds at most.
	FreshNotFound int `json:"fresh_not_found"`
	// PollInterval is what x-operation-poll-interval says, in seconds; 0 means no such header.
	PollInterval int `json:"poll_interval"`
	// Rollback is how long an operation that failed shows its error before it is done.
	Rollback clock.Span `json:"rollback"`
	// FailedCreateVanishes removes what could not be made; else it stays with the status ERROR. Invented.
	FailedCreateVanishes bool `json:"failed_create_vanishes"`
	// ActiveOperations is how many operations can run in the folder; 0 means 15.
	ActiveOperations int `json:"active_operations"`
	// ParallelOperations allows several attaches and detaches of an instance at once.
	ParallelOperations bool `json:"parallel_operations"`
	// DiskLimit is how many disks there can be, CapacityLimit their bytes; 0 means no limit.
	DiskLimit     int   `json:"disk_limit"`
	CapacityLimit int64 `json:"capacity_limit"`
	// Rights are the only calls that the account may make, such as "DiskService/Get"; nil means all. Those that need no
	// token are always allowed.
	Rights []string `json:"rights,omitempty"`
	// Codes replace the gRPC code's name of refusals, by the names that errors.go gives them.
	Codes map[string]string `json:"codes"`
}

const usualActiveOperations = 15

// Zone is an availability zone.
type Zone struct {
	// DiskTypes that there are; nil means all.
	DiskTypes []string `json:"disk_types"`
}

func usualZones() map[string]Zone {
	return map[string]Zone{"ru-central1-a": {}, "ru-central1-b": {}, "ru-central1-d": {}}
}

// Instance is a machine.
type Instance struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Zone string `json:"zone"`
	// Status as the API names it; empty means RUNNING.
	Status string `json:"status"`
	// Cores; 0 means 4.
	Cores int `json:"cores"`
	// Generation of the hardware: Generation11, Generation12 or Generation2; "": the API shows none, and the limits are those of 1.1.
	Generation string `json:"generation"`
	// NoServiceAccount: the instance's metadata service gives no tokens.
	NoServiceAccount bool `json:"no_service_account"`
	// DeviceDir makes the instance this very machine (root only): each disk that is attached to it becomes a
	// loop device with a link in this folder, as udev would make it in /dev/disk/by-id.
	DeviceDir string `json:"device_dir,omitempty"`
}

// platform is that of each instance.
const platform = "standard-v3"

// The generations of an instance's virtual hardware, which decide how many disks it takes.
const (
	Generation11 = "1.1" // legacy, PCI_TOPOLOGY_V1
	Generation12 = "1.2" // legacy, PCI_TOPOLOGY_V2
	Generation2  = "2"
)

// Disk is a disk as the folder knows it.
type Disk struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Labels      map[string]string `json:"labels"`
	Zone        string            `json:"zone"`
	Type        string            `json:"type"`
	// Size and BlockSize are in bytes.
	Size      int64 `json:"size"`
	BlockSize int64 `json:"block_size"`
	// Status is CREATING, READY, ERROR or DELETING.
	Status string `json:"status"`
	// Snapshot and Image that it was made from.
	Snapshot string `json:"snapshot,omitempty"`
	Image    string `json:"image,omitempty"`
	Key      string `json:"key,omitempty"` // that encrypts it
	// PlacementGroup that it is in.
	PlacementGroup string `json:"placement_group,omitempty"`
	// Instance that it is attached to, under the name Device; empty while it is free.
	Instance string    `json:"instance,omitempty"`
	Device   string    `json:"device,omitempty"`
	ReadOnly bool      `json:"read_only,omitempty"`
	Boot     bool      `json:"boot,omitempty"` // the instance boots from it
	Created  time.Time `json:"created"`
	// Content stands for the disk's data where there is none; see Cloud.SetContent.
	Content string `json:"content,omitempty"`
}

// Snapshot is a snapshot as the folder knows it.
type Snapshot struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Labels      map[string]string `json:"labels"`
	Disk        string            `json:"disk"`
	DiskSize    int64             `json:"disk_size"`
	// Status is CREATING, READY, ERROR or DELETING.
	Status  string    `json:"status"`
	Key     string    `json:"key,omitempty"`
	Created time.Time `json:"created"`
	Content string    `json:"content,omitempty"`
}
