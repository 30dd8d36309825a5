// Package yandex keeps volumes in Yandex Cloud: disks of one folder, each of which is bound to a zone and
// attached to a machine of that zone.
//
// It is a translation of the contract in package cloud. Writes are sent first; what a refusal means is
// decided from the state then. Waiting, ordering and the API budget are the shared machinery's. What
// this process remembers of disks (facts.go) saves requests and carries no correctness.
package yandex

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/queue"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/wish"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Config says whose disks these are and how to reach the API. Credentials, Folder and Zone are required.
type Config struct {
	// Credentials returns what CheckCredentials accepts, or nothing for the machine's own account. It is asked
	// with each request, so that new ones are used at once.
	Credentials func() (string, error)
	// MachineToken asks for a token of the machine's own account. Nil: there is none.
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
	// Operations is how many the cloud runs at a time in a folder. Zero means 15.
	Operations int
	// SweepEvery is how often left-over temporary snapshots are looked for. Zero means an hour,
	// a negative value never.
	SweepEvery time.Duration
	// LeftOverAge is from which age a temporary snapshot that is not in use belongs to no call any more. Zero means a
	// day.
	LeftOverAge time.Duration
	// Usual are the shortest plausible durations of operations by kind; nil: learnt from what is seen.
	Usual map[poll.Kind]time.Duration
	// Busy says how to wait while the cloud is busy with somebody else's operations. Zero: the queue's own.
	Busy queue.Backoff
	// Limits are the API's limits; nil: none are documented.
	Limits []budget.Window
	// Rand says how much pauses are left to chance; nil: math/rand/v2.
	Rand func() float64
	// UserAgent names the program.
	UserAgent string
	Log       *zap.Logger
	Metrics   remote.Metrics
}

const (
	defaultEndpoint         = "https://api.cloud.yandex.net:443"
	defaultOperationTimeout = 5 * time.Minute
	defaultSweep            = time.Hour
	defaultLeftOverAge      = 24 * time.Hour
	// defaultOperations is how many operations a folder can have running.
	defaultOperations = 15
	// answerPing is after which silence a connection with a request under way is tested, and how long the
	// test may take.
	answerPing = 20 * time.Second
	// perPage is the most that the cloud puts on a page.
	perPage = 1000
)

// The kinds of operations that are waited for.
const (
	kindCreate   poll.Kind = "create"
	kindRestore  poll.Kind = "restore"
	kindDelete   poll.Kind = "delete"
	kindAttach   poll.Kind = "attach"
	kindDetach   poll.Kind = "detach"
	kindResize   poll.Kind = "resize"
	kindLabel    poll.Kind = "label"
	kindSnapshot poll.Kind = "snapshot"
	kindOther    poll.Kind = "other"
)

// Cloud implements cloud.Cloud over the API of Yandex Cloud.
type Cloud struct {
	api        *api
	disks      compute.DiskServiceClient
	machines   compute.InstanceServiceClient
	snapshots  compute.SnapshotServiceClient
	diskTypes  compute.DiskTypeServiceClient
	operations operation.OperationServiceClient

	folder, zone, cluster, prefix string
	vendorNames                   bool
	patient, leftOld              time.Duration
	log                           *zap.Logger

	work    *remote.Work
	changes *queue.Queue
	ends    *poll.Poller[watch, sight]
	states  *poll.Shared[cloud.VolumeID, *compute.Disk]
	growing *wish.Keeper
	known   facts
	paces   paces
	chains  chains
	cloning remote.InUse // the names of temporary snapshots
	manners manners
	recalls recalls
	clock   clock
	count   atomic.Int64 // how many disks the folder has, as far as a list has told
}

var _ cloud.Cloud = (*Cloud)(nil)

// New returns the folder that the credentials open. It sends nothing yet. What it does in the background
// ends with ctx or Close.
func New(ctx context.Context, cfg Config) (*Cloud, error) {
	switch {
	case cfg.Credentials == nil:
		return nil, fmt.Errorf("no credentials: %w", fault.InvalidArgument)
	case !objectID(cfg.Folder):
		return nil, fmt.Errorf("folder %.80q is not the id of one: %w", cfg.Folder, fault.InvalidArgument)
	case !zoneWord.MatchString(cfg.Zone):
		return nil, fmt.Errorf("zone %.80q is not the name of one, such as ru-central1-a: %w", cfg.Zone, fault.InvalidArgument)
	}
	cfg = withDefaults(cfg)
	conn, err := newAPI(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c := &Cloud{
		api: conn, disks: compute.NewDiskServiceClient(conn), machines: compute.NewInstanceServiceClient(conn),
		snapshots: compute.NewSnapshotServiceClient(conn), diskTypes: compute.NewDiskTypeServiceClient(conn),
		operations: operation.NewOperationServiceClient(conn),
		folder:     cfg.Folder, zone: cfg.Zone, cluster: cfg.ClusterID, prefix: cfg.NamePrefix, vendorNames: cfg.VendorNames,
		patient: cfg.OperationTimeout, leftOld: cfg.LeftOverAge, log: cfg.Log,
		work: remote.NewWork(ctx),
		changes: queue.New(queue.Config{
			Capacity: cfg.Operations, Urgency: urgency, Watch: cfg.OperationTimeout, Busy: cfg.Busy, Rand: cfg.Rand, Metrics: cfg.Metrics.Queue,
		}),
	}
	c.ends = poll.New(poll.Config[watch, sight]{
		Source:  poll.Source[watch, sight]{One: c.lookAtOne, Many: c.lookAtMany},
		Usual:   cfg.Usual,
		Rand:    cfg.Rand,
		Metrics: cfg.Metrics.Poll,
	})
	c.states = poll.NewShared(poll.SharedConfig[cloud.VolumeID, *compute.Disk]{
		Source:  poll.Source[cloud.VolumeID, *compute.Disk]{One: c.disk, Many: c.manyDisks},
		Metrics: cfg.Metrics.Poll,
	})
	c.growing = c.newKeeper(cfg)
	if cfg.SweepEvery > 0 {
		c.work.Every(cfg.SweepEvery, c.sweep)
	}
	return c, nil
}

// urgency is the order in which changes get the folder's places for operations: that of the API's budget.
func urgency(ctx context.Context) int {
	if p := budget.PriorityOf(ctx); p != budget.Default {
		return int(p)
	}
	return int(budget.Write)
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
	if cfg.OperationTimeout <= 0 {
		cfg.OperationTimeout = defaultOperationTimeout
	}
	if cfg.Operations <= 0 {
		cfg.Operations = defaultOperations
	}
	if cfg.SweepEvery == 0 {
		cfg.SweepEvery = defaultSweep
	}
	if cfg.LeftOverAge <= 0 {
		cfg.LeftOverAge = defaultLeftOverAge
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Metrics.WishFailed == nil {
		cfg.Metrics.WishFailed = func() {}
	}
	return cfg
}

// Close ends what is under way in the background within the life of ctx. Calls must have ended.
func (c *Cloud) Close(ctx context.Context) error {
	c.work.End()
	c.changes.Close()
	c.ends.Close()
	c.states.Close()
	err := c.work.Wait(ctx)
	if downErr := c.api.sdk.Shutdown(ctx); downErr != nil {
		err = errors.Join(err, fmt.Errorf("close the connections: %w", downErr))
	}
	return err
}

// Capabilities says what the cloud can do. How many disks a machine can have depends on the machine.
func (c *Cloud) Capabilities() cloud.Capabilities {
	return cloud.Capabilities{
		Attach: true, Expand: true, Snapshots: true, Clones: true,
		Scope:          cloud.ScopeZone,
		SizeStep:       usualStep,
		SmallestVolume: smallestDisk,
		LargestVolume:  largestDisk,
		DefaultSize:    defaultDisk,
		Parameters:     []string{paramBlockSize, paramEncrypted, paramKMSKey, paramType},
	}
}

// Capacity answers fault.Unsupported: the cloud does not say how much room it has.
func (c *Cloud) Capacity(context.Context, string) (cloud.Bytes, error) {
	return 0, fmt.Errorf("capacity: %w", fault.Unsupported)
}

// Check reads one disk, which needs the right that every other read needs.
func (c *Cloud) Check(ctx context.Context) error {
	ctx = budget.WithPriority(ctx, budget.List)
	_, err := c.disks.List(ctx, &compute.ListDisksRequest{FolderId: c.folder, PageSize: 1})
	return readError("look at the disks of folder "+c.folder, err)
}

// bounded gives a call that has no deadline the operation's.
func (c *Cloud) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.patient)
}
