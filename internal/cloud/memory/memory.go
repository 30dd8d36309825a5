// Package memory is the reference backend: a cloud in memory that keeps every sentence of the
// contract and can do all of it. It stands in for a cloud in the tests of the layers above, and in
// the tests of the conformance suite itself.
//
// It is a fake with state. Tests shape it with Config, arm faults with Account.Arm and then look at
// what the state has become; there is nothing that records calls.
package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Node is a machine that volumes can be attached to.
type Node struct {
	ID   cloud.NodeID
	Zone string
}

// Config shapes an account. Each zero field means the default that its comment names.
type Config struct {
	// Capabilities are what the backend can do: Full. What they lack is answered fault.Unsupported.
	Capabilities cloud.Capabilities
	// Zones are the places of volumes, the first of them the backend's own: zone-a and zone-b.
	Zones []string
	// Nodes are the machines: node-1 and node-2 in the first zone, node-3 in the last.
	Nodes []Node
	// Space is the room for volumes in each zone: 1 TiB.
	Space cloud.Bytes
	// PageSize is the longest page of a list: 100.
	PageSize int
	// ReadLag is how old the state is that reads show: none. Writes always see the truth.
	ReadLag time.Duration
	// OperationTime is how long a change takes after it was sent: none.
	OperationTime time.Duration
	// OfflineExpand: volumes grow only while they are attached nowhere.
	OfflineExpand bool
	// NodeMustConfirm: nodes see a larger size only when they attach the volume again.
	NodeMustConfirm bool
	// Slots is how many volumes a node can have: no limit.
	Slots int
	// Places are other places of the same kind: an id that begins with one of them and a slash is
	// that place's. None.
	Places []string
	// NamesPerCluster: each cluster has names of its own. Otherwise all of the account share them.
	NamesPerCluster bool
}

// Full returns the capabilities of a backend that can do everything.
func Full() cloud.Capabilities {
	return cloud.Capabilities{
		Attach: true, Expand: true, Snapshots: true, Clones: true, Capacity: true, Modify: true, Health: true,
		Scope:          cloud.ScopeZone,
		SizeStep:       cloud.GiB,
		SmallestVolume: cloud.GiB,
		LargestVolume:  100 * cloud.GiB,
		DefaultSize:    10 * cloud.GiB,
		Parameters:     []string{"tier", "type"},
	}
}

func (c Config) withDefaults() Config {
	if c.Capabilities.Scope == "" {
		c.Capabilities = Full()
	}
	if len(c.Zones) == 0 {
		c.Zones = []string{"zone-a", "zone-b"}
	}
	if len(c.Nodes) == 0 {
		first, last := c.Zones[0], c.Zones[len(c.Zones)-1]
		c.Nodes = []Node{{"node-1", first}, {"node-2", first}, {"node-3", last}}
	}
	if c.Space == 0 {
		c.Space = cloud.TiB
	}
	if c.PageSize == 0 {
		c.PageSize = 100
	}
	return c
}

// Account is what the clusters of one owner share: the volumes, the nodes and the room.
type Account struct {
	cfg Config

	mu       sync.Mutex
	nodes    map[cloud.NodeID]Node
	versions []version // the last is the truth; older ones are kept for as long as a read shows them
	last     int       // the number of the newest object
	tokens   map[string]int
	armed    map[Call][]Fault
}

// NewAccount returns an account without volumes.
func NewAccount(cfg Config) *Account {
	a := &Account{
		cfg:      cfg.withDefaults(),
		nodes:    map[cloud.NodeID]Node{},
		versions: []version{{state: newState()}},
		tokens:   map[string]int{},
		armed:    map[Call][]Fault{},
	}
	for _, n := range a.cfg.Nodes {
		a.nodes[n.ID] = n
	}
	return a
}

// Cluster returns the account as one cluster sees it. Two clusters may use one request name.
func (a *Account) Cluster(id string) *Cloud { return &Cloud{account: a, cluster: id} }

// New returns the only cluster of a new account.
func New(cfg Config) *Cloud { return NewAccount(cfg).Cluster("") }

// SetInUse marks a volume as in use, or not, where there is no attaching that would show it.
func (a *Account) SetInUse(id cloud.VolumeID, inUse bool) error {
	return a.set(id, func(vol *volume) { vol.inUse = inUse })
}

// SetUnfit makes a volume one that cannot be snapshotted now, for this reason, or one that can.
func (a *Account) SetUnfit(id cloud.VolumeID, reason string) error {
	return a.set(id, func(vol *volume) { vol.unfit = reason })
}

// SetHealth says what is wrong with a volume.
func (a *Account) SetHealth(id cloud.VolumeID, health cloud.Health) error {
	return a.set(id, func(vol *volume) { vol.Health = health })
}

func (a *Account) set(id cloud.VolumeID, to func(vol *volume)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.change(func(s state) error {
		vol, err := s.volume(id)
		if err != nil {
			return err
		}
		to(&vol)
		s.volumes[id] = vol
		return nil
	})
}

// Cloud is one cluster's view of an account. It is a cloud.Cloud.
type Cloud struct {
	account *Account
	cluster string
}

var _ cloud.Cloud = (*Cloud)(nil)

// Account returns the account, so that a test that has only the cloud can arm faults.
func (c *Cloud) Account() *Account { return c.account }

// Capabilities returns what Config says.
func (c *Cloud) Capabilities() cloud.Capabilities {
	caps := c.account.cfg.Capabilities
	caps.Parameters = slices.Clone(caps.Parameters)
	return caps
}

// Capacity returns the room that is left in the zone.
func (c *Cloud) Capacity(ctx context.Context, zone string, class []cloud.Parameter) (cloud.Bytes, error) {
	a := c.account
	if !a.cfg.Capabilities.Capacity {
		return 0, fmt.Errorf("capacity: %w", fault.Unsupported)
	}
	if zone == "" {
		zone = a.cfg.Zones[0]
	}
	if err := a.checkParameters(class); err != nil {
		return 0, fmt.Errorf("capacity: %w", err)
	}
	return read(ctx, a, CallCapacity, func(s state) (cloud.Bytes, error) {
		if !slices.Contains(a.cfg.Zones, zone) {
			return 0, fmt.Errorf("capacity of zone %q: %w: the zones are %q", zone, fault.NotFound, a.cfg.Zones)
		}
		return a.room(s, zone), nil
	})
}

// Check finds nothing wrong unless a fault is armed.
func (c *Cloud) Check(ctx context.Context) error {
	_, err := read(ctx, c.account, CallCheck, func(state) (struct{}, error) { return struct{}{}, nil })
	return err
}
