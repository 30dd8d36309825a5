// Package yandex is an emulated Yandex Cloud folder: the real API for disks, snapshots, instances and their
// operations, with its limits, refusals and delays, over gRPC on the loopback address or in memory, together
// with the metadata service of its instances. A test starts it with Start, a person with
// `go run ./test/kit/emulator --cloud yandex`.
package yandex

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/endpoint"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/iam/v1"
	operationpb "github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc/test/bufconn"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/disks"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/history"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rpc"
)

type effect = faults.Effect

// Fault is something that goes wrong; see package faults. Its Method is that of a service, such as "Create",
// its Route goes with the service, such as "DiskService/Create", and its Status is a gRPC code. The ID is the
// name of the code with which an errored operation ends, such as "RESOURCE_EXHAUSTED".
type Fault = faults.Fault

// Cloud is an emulated folder.
type Cloud struct {
	account.Site[string]
	account.Holds[string]
	account.Settings[Durations, Rules]
	// Token is one that never ends. Folder is the id of the folder.
	Token, Folder string

	opts   Options
	server *rpc.Server
	clock  *clock.Clock
	dice   account.Dice
	record account.Record[string, Operation, Violation]

	mu      sync.Mutex
	later   account.Timers
	now     state
	past    history.Log[state]
	rules   Rules
	lasts   Durations
	numbers int
	running map[string]*job
	keys    map[string]usedKey
	unseen  map[string]int // operations that Get does not find yet, and how often
	access  access
	// groups that disks can be put into.
	groups map[string]PlacementGroup
	disks  disks.Store

	dialOnce sync.Once
	memory   *bufconn.Listener
}

// New makes a folder that serves nothing yet but Dial.
func New(opts Options) (*Cloud, error) {
	opts.Zone = cmp.Or(opts.Zone, DefaultZone)
	if opts.Zones == nil {
		opts.Zones = usualZones()
	}
	c := &Cloud{
		Token: cmp.Or(opts.Token, DefaultToken), Folder: DefaultFolder,
		opts: opts, clock: clock.New(opts.Speed), dice: account.Dice{Seed: opts.Seed}, now: newState(),
		rules: opts.Rules, lasts: opts.Durations, running: map[string]*job{}, keys: map[string]usedKey{},
		unseen: map[string]int{}, groups: map[string]PlacementGroup{}, memory: bufconn.Listen(1 << 16),
	}
	c.access = newAccess()
	c.later = account.Timers{Clock: c.clock, Lock: &c.mu}
	var err error
	if c.disks, err = disks.OpenStore(opts.Disks, opts.DataDir); err != nil {
		return nil, err
	}
	c.server = rpc.New(rpc.Config{
		Clock: c.clock, Seed: opts.Seed, Kind: kindOf, Admit: c.admit, Decide: c.decide,
		RequestID: func() string { return c.dice.UUID("request", "") },
	})
	c.Site = account.NewSite[string](account.SiteConfig{
		Cloud: "yandex", Machines: "instances", API: c.server, HTTP2: true, Faults: c.server.Faults,
		Exchanges: c.server.Exchanges, Metadata: c.metadataRoutes, Control: c.control,
	})
	c.Settings = account.NewSettings(&c.mu, &c.lasts, &c.rules, nil)
	c.services()
	for range opts.Instances {
		c.AddInstance(Instance{})
	}
	return c, nil
}

func (c *Cloud) services() {
	server := c.server.GRPC
	endpoint.RegisterApiEndpointServiceServer(server, endpointService{c: c})
	iam.RegisterIamTokenServiceServer(server, tokenService{c: c})
	operationpb.RegisterOperationServiceServer(server, operationService{c: c})
	compute.RegisterDiskServiceServer(server, diskService{c: c})
	compute.RegisterSnapshotServiceServer(server, snapshotService{c: c})
	compute.RegisterInstanceServiceServer(server, instanceService{c: c})
	compute.RegisterDiskTypeServiceServer(server, diskTypeService{c: c})
	compute.RegisterDiskPlacementGroupServiceServer(server, placementGroupService{c: c})
}

// Testing is what Start needs of a *testing.T.
type Testing = account.Testing

// Start starts a folder that lives as long as the test. The test fails if something is left that cannot be
// cleaned up.
func Start(t Testing, opts Options) *Cloud {
	t.Helper()
	c, err := New(opts)
	account.Live(t, c, err, opts.InMemory)
	return c
}

// Report does nothing: there is no machine-readable description that the exchanges could break.
func (c *Cloud) Report(Testing) {}

// Dial connects to the folder in memory, whatever the address: it is for grpc.WithContextDialer, with plain
// text.
func (c *Cloud) Dial(ctx context.Context, _ string) (net.Conn, error) {
	c.dialOnce.Do(func() { c.ServeOn(c.memory) })
	return c.memory.DialContext(ctx)
}

// Close ends what is running, detaches what this machine has attached and removes the data.
func (c *Cloud) Close() error {
	err := errors.Join(c.StopListening(), c.memory.Close())
	c.server.Close()
	c.WaitListening()
	c.server.GRPC.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.later.Stop()
	return errors.Join(err, c.disks.Close())
}

type endpointService struct {
	endpoint.UnimplementedApiEndpointServiceServer
	c *Cloud
}

// services are those that have an address.
var services = []string{"compute", "endpoint", "iam", "operation"}

// List tells that everything is at the address that was called.
func (s endpointService) List(ctx context.Context, _ *endpoint.ListApiEndpointsRequest) (*endpoint.ListApiEndpointsResponse, error) {
	list := &endpoint.ListApiEndpointsResponse{}
	for _, id := range services {
		list.Endpoints = append(list.Endpoints, &endpoint.ApiEndpoint{Id: id, Address: here(ctx)})
	}
	return list, nil
}

// here is the address that a caller used.
func here(ctx context.Context) string { return firstOf(rpc.From(ctx).Header, ":authority") }
