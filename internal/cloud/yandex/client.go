// Package yandex keeps volumes in Yandex Cloud: disks of one folder, which are bound to a zone and
// attached to instances of that zone.
//
// The facts of the cloud and its requests are in requests.go; package block has the verbs of a volume, and package ops carries changes
// out.
package yandex

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/profile"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Config says whose disks these are and how to reach the API. Credentials, Folder and Zone are required.
type Config struct {
	// Credentials returns what CheckCredentials accepts, or nothing for the instance's own account. It is asked
	// with each request, so that new ones are used at once.
	Credentials func() (string, error)
	// MachineToken asks for a token of the instance's own account. Nil: there is none.
	MachineToken func(ctx context.Context) (Token, error)
	// Endpoint is where the cloud lists the addresses of its services, as https://host[:port]; "" is the
	// cloud's own. With http://, for loopback addresses only, nothing is encrypted.
	Endpoint string
	// RootCAs are the certificates that the API is trusted by; nil: the system's.
	RootCAs *x509.CertPool
	// Dial connects to an address in place of the network; nil: the network.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Around is put around each request; nil: nothing.
	Around grpc.UnaryClientInterceptor
	// Folder is the id of the folder that the disks are in.
	Folder string
	// Zone is used when a request names none.
	Zone string
	// ClusterID is written on everything made, and whatever carries another one is not ours.
	ClusterID string
	// NamePrefix begins the names of everything made.
	NamePrefix string
	// VendorNames attaches disks under the names that the vendor's driver gives them.
	VendorNames bool
	// OperationTimeout bounds waits that no caller bounds. Zero means 5 minutes.
	OperationTimeout time.Duration
	// Operations is how many the cloud runs at a time in the folder. Zero means DefaultOperations.
	Operations int
	// SweepEvery is how often orphaned temporary snapshots are looked for. Zero means an hour,
	// a negative value never.
	SweepEvery time.Duration
	// OrphanAge is from which age a temporary snapshot that is not in use belongs to no call any more. Zero means a
	// day.
	OrphanAge time.Duration
	// Interval is the time between two reads of an operation where the cloud asks for no other one. Zero: a second, as in
	// the cloud's SDKs.
	Interval time.Duration
	// Busy says how to wait while the cloud is busy with other operations. Zero: package ops' own.
	Busy ops.Backoff
	// Limits are the API's limits; nil: none are documented.
	Limits []budget.Window
	// Rand says how much pauses are left to chance; nil: math/rand/v2.
	Rand func() float64
	// UserAgent names the program.
	UserAgent string
	Log       *zap.Logger
	Metrics   Metrics
}

const (
	defaultEndpoint = "https://api.cloud.yandex.net:443"
	defaultSweep    = time.Hour
	defaultOrphan   = 24 * time.Hour
	// DefaultOperations is how many operations the cloud runs at a time in a folder. It is a quota that can be raised.
	DefaultOperations = 15
	// answerPing is after which silence a connection with a request under way is tested, and how long the
	// test may take.
	answerPing = 20 * time.Second
	// perPage is the largest page of a list.
	perPage = 1000
)

// Metrics are those of what all clouds share. Each may be nil.
type Metrics struct {
	Ops    *ops.Metrics
	Budget *budget.Metrics
}

// Cloud implements cloud.Cloud over the API of Yandex Cloud.
type Cloud struct {
	*block.Verbs

	channel    *channel
	disks      compute.DiskServiceClient
	instances  compute.InstanceServiceClient
	snapshots  compute.SnapshotServiceClient
	diskTypes  compute.DiskTypeServiceClient
	groups     compute.DiskPlacementGroupServiceClient
	operations operation.OperationServiceClient
	ops        *ops.Runner

	folder, zone, prefix string
	owner                tags.Owner
	vendorNames          bool
	orphanAge, interval  time.Duration
	log                  *zap.Logger

	// answered are the operations that creates were answered with, deleted the snapshots that callers have deleted.
	answered, deleted ids
	// manyDisks and fewDisks are instances whose hardware was read.
	manyDisks, fewDisks ids
	clones              *block.Through[*compute.Snapshot]
}

var (
	_ cloud.Cloud    = (*Cloud)(nil)
	_ cloud.Modifier = (*Cloud)(nil)
)

// New returns the folder that the credentials open. It sends nothing yet. What it does in the background
// ends with ctx or Close.
func New(ctx context.Context, cfg Config) (*Cloud, error) {
	switch {
	case cfg.Credentials == nil:
		return nil, fmt.Errorf("no credentials: %w", fault.InvalidArgument)
	case cfg.ClusterID == "":
		return nil, fmt.Errorf("no cluster id: %w", fault.InvalidArgument)
	case !objectID(cfg.Folder):
		return nil, fmt.Errorf("folder %.80q is not the id of one: %w", cfg.Folder, fault.InvalidArgument)
	case !zoneWord.MatchString(cfg.Zone):
		return nil, fmt.Errorf("zone %.80q is not the name of one, such as ru-central1-a: %w", cfg.Zone, fault.InvalidArgument)
	}
	cfg = withDefaults(cfg)
	conn, err := newChannel(cfg)
	if err != nil {
		return nil, err
	}
	c := &Cloud{
		channel: conn, disks: compute.NewDiskServiceClient(conn), instances: compute.NewInstanceServiceClient(conn),
		snapshots: compute.NewSnapshotServiceClient(conn), diskTypes: compute.NewDiskTypeServiceClient(conn),
		groups:     compute.NewDiskPlacementGroupServiceClient(conn),
		operations: operation.NewOperationServiceClient(conn),
		folder:     cfg.Folder, zone: cfg.Zone, owner: ownerOf(cfg.ClusterID), prefix: cfg.NamePrefix, vendorNames: cfg.VendorNames,
		orphanAge: cfg.OrphanAge, interval: cmp.Or(cfg.Interval, time.Second), log: cfg.Log,
	}
	c.ops = ops.New(ctx, ops.Config{
		Tracker: tracker{c}, Capacity: cfg.Operations,
		Timeout: cfg.OperationTimeout, Tick: c.interval / 2, Busy: cfg.Busy, Rand: cfg.Rand, Metrics: cfg.Metrics.Ops,
	})
	c.Verbs = block.New(traits, requests{c}, c.ops, nil)
	c.clones = c.throughSnapshots(block.NewLeftovers(c.ops, cfg.OrphanAge, cfg.Log))
	c.clones.Every(cfg.SweepEvery, c.Sweep)
	return c, nil
}

func withDefaults(cfg Config) Config {
	if cfg.Endpoint == "" {
		cfg.Endpoint = defaultEndpoint
	}
	if cfg.MachineToken == nil {
		cfg.MachineToken = func(context.Context) (Token, error) {
			return Token{}, fmt.Errorf("%w: no credentials were given", fault.Denied)
		}
	}
	if cfg.Operations <= 0 {
		cfg.Operations = DefaultOperations
	}
	if cfg.SweepEvery == 0 {
		cfg.SweepEvery = defaultSweep
	}
	if cfg.OrphanAge <= 0 {
		cfg.OrphanAge = defaultOrphan
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return cfg
}

// Close ends what is under way in the background within the life of ctx. Calls must have ended.
func (c *Cloud) Close(ctx context.Context) error {
	err := c.ops.Close(ctx)
	if closeErr := c.channel.connections.close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close the connections: %w", closeErr))
	}
	return err
}

// Capabilities says what the cloud can do. How many disks an instance can have depends on the instance.
func (c *Cloud) Capabilities() cloud.Capabilities {
	return cloud.Capabilities{
		Attach: true, Expand: true, Modify: true, Snapshots: true, Clones: true, Health: true,
		Scope:          cloud.Scope(profile.Yandex.Scope),
		SizeStep:       usualStep,
		SmallestVolume: minDisk,
		LargestVolume:  maxDisk,
		DefaultSize:    defaultDisk,
		Parameters:     []string{paramBlockSize, paramEncrypted, paramGroup, paramKMSKey, paramType},
	}
}

// Capacity answers fault.Unsupported: the cloud does not say how much space it has.
func (c *Cloud) Capacity(context.Context, string, []cloud.Parameter) (cloud.Bytes, error) {
	return 0, fmt.Errorf("capacity: %w", fault.Unsupported)
}

// Check reads one disk and one snapshot, and so names which of them the account may not read. Whether it may change
// anything no read shows.
func (c *Cloud) Check(ctx context.Context) error {
	_, disks := c.disks.List(ctx, &compute.ListDisksRequest{FolderId: c.folder, PageSize: 1}, priority(budget.List))
	if disks != nil && fault.Of(disks) != fault.Denied {
		return about(disks, "read the disks of folder %s", c.folder)
	}
	_, snapshots := c.snapshots.List(ctx, &compute.ListSnapshotsRequest{FolderId: c.folder, PageSize: 1}, priority(budget.List))
	err := errors.Join(about(disks, "read the disks of folder %s", c.folder), about(snapshots, "read the snapshots of folder %s", c.folder))
	if a := answerOf(err); a != nil && a.code == codes.PermissionDenied {
		return fmt.Errorf("the account lacks a right; compute.editor for the folder has all that are needed: %w", err)
	}
	return err
}

// CheckRegion reads whether the backend's own zone has disks; it is fault.NoZone if not.
func (c *Cloud) CheckRegion(ctx context.Context) error {
	kind, err := c.diskTypes.Get(ctx, &compute.GetDiskTypeRequest{DiskTypeId: usualType})
	if err == nil && !slices.Contains(kind.GetZoneIds(), c.zone) {
		err = fmt.Errorf("the zone %s has no disks of the type %s, or does not exist: %w", c.zone, usualType, fault.NoZone)
	}
	return err
}
