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
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// Config says whose disks these are and how to reach the API. Folder is required too. What Token returns is what CheckCredentials accepts,
// or nothing for the instance's own account. Endpoint is where the cloud lists the addresses of its services, as https://host[:port]; with
// http://, for loopback addresses only, nothing is encrypted.
type Config struct {
	block.Config

	// MachineToken asks for a token of the instance's own account. Nil: there is none.
	MachineToken func(ctx context.Context) (Token, error)
	// RootCAs are the certificates that the API is trusted by; nil: the system's.
	RootCAs *x509.CertPool
	// Dial connects to an address in place of the network; nil: the network.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Around is put around each request; nil: nothing.
	Around grpc.UnaryClientInterceptor
	// Folder is the id of the folder that the disks are in.
	Folder string
	// VendorNames attaches disks under the names that the vendor's driver gives them.
	VendorNames bool
	// Operations is how many the cloud runs at a time in the folder. Zero means DefaultOperations.
	Operations int
}

const (
	defaultEndpoint = "https://api.cloud.yandex.net:443"
	// DefaultOperations is how many operations the cloud runs at a time in a folder. It is a quota that can be raised.
	DefaultOperations = 15
	// answerPing is after which silence a connection with a request under way is tested, and how long the
	// test may take.
	answerPing = 20 * time.Second
	// perPage is the largest page of a list.
	perPage = 1000
)

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
	clones            *block.Through[*compute.Snapshot]
}

var (
	_ cloud.Cloud    = (*Cloud)(nil)
	_ cloud.Modifier = (*Cloud)(nil)
)

// New returns the folder that the credentials open. It sends nothing yet. What it does in the background
// ends with ctx or Close.
func New(ctx context.Context, cfg Config) (*Cloud, error) {
	if err := cfg.Complete(zoneWord.MatchString, defaultEndpoint, nil); err != nil { // limits are not documented
		return nil, err
	}
	if !objectID(cfg.Folder) {
		return nil, fmt.Errorf("folder %.80q is not the id of one: %w", cfg.Folder, fault.InvalidArgument)
	}
	if cfg.MachineToken == nil {
		cfg.MachineToken = func(context.Context) (Token, error) {
			return Token{}, fmt.Errorf("%w: no credentials were given", fault.Denied)
		}
	}
	conn, err := newChannel(cfg)
	if err != nil {
		return nil, err
	}
	c := &Cloud{
		channel: conn, disks: compute.NewDiskServiceClient(conn), instances: compute.NewInstanceServiceClient(conn),
		snapshots: compute.NewSnapshotServiceClient(conn), diskTypes: compute.NewDiskTypeServiceClient(conn),
		groups:     compute.NewDiskPlacementGroupServiceClient(conn),
		operations: operation.NewOperationServiceClient(conn),
		folder:     cfg.Folder, zone: cfg.Region, owner: ownerOf(cfg.ClusterID), prefix: cfg.NamePrefix, vendorNames: cfg.VendorNames,
		orphanAge: cfg.OrphanAge, interval: cmp.Or(cfg.Tick, time.Second), log: cfg.Log,
	}
	running := cfg.Ops(tracker{c})
	running.Capacity, running.Tick = cmp.Or(max(cfg.Operations, 0), DefaultOperations), c.interval/2
	c.ops = ops.New(ctx, running)
	c.Verbs = block.New(traits, requests{c}, c.ops, nil)
	c.clones = c.throughSnapshots(block.NewLeftovers(c.ops, cfg.OrphanAge, cfg.Log))
	c.clones.Every(cfg.SweepEvery, c.Sweep)
	return c, nil
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
