// Package accounts starts an emulated account of any cloud by its name, and shows all of them in the same words: their
// machines, volumes and snapshots, what was asked of them and what broke a rule. The emulator program, the demo, the
// benchmarks, the chaos runs and the end-to-end tests are written with it. What only one cloud has is behind its own type:
// DigitalOcean, Linode or Yandex, which have the emulator in them.
package accounts

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/contract"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

// Account is an emulated account as its owner sees and changes it. Ids are texts, as they are in CSI.
type Account interface {
	// Name is what --cloud takes, Region the cloud's usual one here, on Yandex Cloud a zone.
	Name() string
	Region() string
	// Token opens the account. URL is its API's, without a path.
	Token() string
	URL() string
	// Memory is the way to the API without a socket.
	Memory() Way
	Listen(ctx context.Context, address string) error
	ListenTLS(ctx context.Context, address string, hosts ...string) (url string, authority []byte, err error)
	// Handler is everything that the account serves.
	Handler() http.Handler
	// Close ends the account and removes its data.
	Close() error

	// Flags are a controller's that say where the volumes are. Controller adds how to reach the API, with the credentials
	// in a file of dir.
	Flags() []string
	Controller(dir string) ([]string, error)
	// Machine adds this machine, with the links to its volumes in a folder of dir, and returns its node program's flags.
	Machine(dir string) ([]string, error)

	// Machines are the ids of the machines, Kind is what the cloud calls one.
	Machines() []string
	Kind() string
	// AddMachine adds one. devices, if not empty, makes it this very machine: a volume that is attached becomes a loop
	// device with a link in that folder.
	AddMachine(devices string) (id string)
	// RemoveMachine takes one away; its volumes' records name it for as long as lag.
	RemoveMachine(id string, lag time.Duration)
	// Metadata is the URL of a machine's metadata service; ListenMetadata serves it at an address of its own.
	Metadata(machine string) string
	ListenMetadata(ctx context.Context, machine, address string) (url string, err error)

	// Size is that of a small volume.
	Size() int64
	// GrowsInUse reports whether a machine sees an attached volume grow; else it does when the volume is attached again.
	GrowsInUse() bool
	Volumes() []Volume
	Snapshots() []Snapshot
	// AddVolume and AddSnapshot add something without asking the API, as another client could; size 0 is a small one.
	// Without snapshots AddSnapshot fails with errors.ErrUnsupported.
	AddVolume(Volume) (id string, err error)
	AddSnapshot(Snapshot) (id string, err error)
	// DeleteVolume asks the API, as the owner at a console would.
	DeleteVolume(id string) error
	// Attached changes where a volume's record says that it is, without an operation; "" frees it.
	Attached(volume, machine string)
	SetContent(volume, content string)
	// Hold marks a volume as in use: a detach meanwhile is a violation.
	Hold(volume string) (release func())
	// Busy reports whether an operation of a volume is under way.
	Busy(volume string) bool

	// Operations and Exchanges are those since ResetStats, and so are the counters and violations.
	Operations() []Operation
	Exchanges() []rest.Exchange
	Stats() Stats
	Violations() []string
	ResetStats()
	// Contract compares the exchanges with the API's official description; Unchecked says why it does not.
	Contract() contract.Totals
	Unchecked() string

	Arm(faults.Fault) *faults.Armed
	Disarm()
	// SlowReads lets the answer to each read take so long.
	SlowReads(time.Duration)
}

// Options say how an account begins. The zero value has no machines, and its operations are over at once.
type Options struct {
	// Token and Region; empty: the emulator's own.
	Token, Region string
	// DataDir is where the volumes' data is kept, which machines with devices need; empty: volumes have none.
	DataDir  string
	Machines int
	// Seed of everything that is left to chance.
	Seed uint64
	// Speed of the account's time: 60 makes an hour pass in a minute. 0 means 1.
	Speed float64
	// Takes is how long an operation takes.
	Takes clock.Span
	// Limits of requests. Real adds what the real account enforces and what otherwise only slows tests down.
	Limits []rest.Limit
	Real   bool
	// Decide, if set, is asked about each request that no armed fault strikes.
	Decide func(Call) faults.Effect
}

// Call is a request as Options.Decide sees it: its method and route, what it does to a volume where the route does not
// say that, and the volume's name.
type Call struct{ Method, Route, Action, Volume string }

// Volume is a volume of any cloud.
type Volume struct {
	ID, Name, Description string
	// Tags are the cloud's tags, or its labels as key:value.
	Tags []string
	Size int64
	// Content stands for its data.
	Content string
	// Status is the cloud's word; DigitalOcean has none.
	Status string
	// Machine that its record names; empty while it is free. Ready: the machine has its device.
	Machine string
	Ready   bool
}

// Snapshot is a snapshot of any cloud, of the volume Source.
type Snapshot struct {
	ID, Name, Source string
	Tags             []string
	Content, Status  string
}

// The kinds of operations that every cloud has; the others are called what the cloud calls them.
const (
	Create = "create"
	Attach = "attach"
	Detach = "detach"
	Delete = "delete"
)

// Operation is a change of the volume with a name, by the wall clock; Finished is zero while it runs.
type Operation struct {
	Kind, Volume       string
	Accepted, Finished time.Time
}

// Stats are an API's counters.
type Stats struct {
	rest.Stats
	// AtOnce is how many operations ran at once in the account at most, where the cloud limits that.
	AtOnce int
}

// Way is how a client reaches an API past the network: those of HTTP by Web, others by Dial.
type Way struct {
	Web  http.RoundTripper
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// clouds are the emulated clouds.
var clouds = map[string]struct {
	start  func(Options) (Account, error)
	limits func() []rest.Limit
}{
	"digitalocean": {
		start:  func(o Options) (Account, error) { return StartDigitalOcean(o) },
		limits: digitalocean.RealLimits,
	},
	"linode": {
		start:  func(o Options) (Account, error) { return StartLinode(o) },
		limits: linode.RealLimits,
	},
	"yandex": {
		start:  func(o Options) (Account, error) { return StartYandex(o) },
		limits: func() []rest.Limit { return nil },
	},
}

// Names are the clouds that have an emulator.
func Names() []string { return slices.Sorted(maps.Keys(clouds)) }

// Limits are the documented limits of a cloud's API.
func Limits(cloud string) ([]rest.Limit, error) {
	known, found := clouds[cloud]
	if !found {
		return nil, unknown(cloud)
	}
	return known.limits(), nil
}

// Start makes an account that only Memory reaches yet.
func Start(cloud string, o Options) (Account, error) {
	known, found := clouds[cloud]
	if !found {
		return nil, unknown(cloud)
	}
	return known.start(o)
}

func unknown(cloud string) error {
	return fmt.Errorf("there is no emulated cloud %q: known are %s", cloud, strings.Join(Names(), ", "))
}

// Find returns the volume with an id; without one its record is empty.
func Find(a Account, id string) Volume {
	for _, v := range a.Volumes() {
		if v.ID == id {
			return v
		}
	}
	return Volume{}
}

// Left names the volumes and snapshots that there are.
func Left(a Account) (left []string) {
	for _, v := range a.Volumes() {
		left = append(left, "volume "+v.Name)
	}
	for _, s := range a.Snapshots() {
		left = append(left, "snapshot "+s.Name)
	}
	return left
}

// Wrong says what must not have happened: violations, and exchanges that break the API's official description.
func Wrong(a Account) []string { return append(a.Contract().Details, a.Violations()...) }
