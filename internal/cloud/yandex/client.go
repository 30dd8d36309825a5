// Package yandex keeps volumes in Yandex Cloud: disks of one folder, which are bound to a zone and
// attached to instances of that zone.
//
// The cloud's facts and requests are in requests.go; package block has attach, detach, growth, deletion and find, and package ops runs the
// changes.
package yandex

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"github.com/yandex-cloud/go-sdk/v2/credentials"
	"github.com/yandex-cloud/go-sdk/v2/pkg/iamkey"
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

// Config configures a Cloud. Folder is required too. Token returns what CheckCredentials accepts, or "" for the instance's own account.
// Endpoint is where the cloud lists the addresses of its services, as https://host[:port], or without encryption as http:// for
// loopback addresses.
type Config struct {
	block.Config

	// MachineToken returns a token of the instance's own account; nil: there is none.
	MachineToken func(ctx context.Context) (Token, error)
	// RootCAs verify the API's certificates; nil: the system's.
	RootCAs *x509.CertPool
	// Dial connects to an address in place of the network; nil: the network.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Around intercepts each request; may be nil.
	Around grpc.UnaryClientInterceptor
	// Folder is the id of the folder that the disks are in.
	Folder string
	// VendorNames attaches disks with the device names of the vendor's driver.
	VendorNames bool
	// Operations is how many operations the cloud runs at a time in the folder; 0 means DefaultOperations.
	Operations int
}

const (
	defaultEndpoint = "https://api.cloud.yandex.net:443"
	// DefaultOperations is how many operations the cloud runs at a time in a folder. It is a quota that can be raised.
	DefaultOperations = 15
	// answerPing is the keepalive time and timeout of a connection with a request in flight.
	answerPing = 20 * time.Second
	// perPage is the largest page of a list.
	perPage = 1000
)

// Cloud implements cloud.Cloud over the API of Yandex Cloud.
type Cloud struct {
	*block.Verbs
	cloud.NoCapacity

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

	// seenOperations are the operations that answered creates, deleted the snapshots that callers have deleted.
	seenOperations, deleted block.Cache[string, struct{}]
	clones                  *block.Through[*compute.Snapshot]
}

var _ cloud.Cloud = (*Cloud)(nil)

// New returns a Cloud. It sends nothing. Its background work ends with ctx or Close.
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

// Close stops the background work and waits for it as long as ctx lasts. Calls must have ended.
func (c *Cloud) Close(ctx context.Context) error {
	err := c.ops.Close(ctx)
	if closeErr := c.channel.connections.close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close the connections: %w", closeErr))
	}
	return err
}

// Capabilities returns what the cloud can do. The attach limit depends on the instance.
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

// Check lists one disk and one snapshot, and names the list that the account may not read. No read shows whether it may change
// anything.
func (c *Cloud) Check(ctx context.Context) error {
	_, disks := c.disks.List(ctx, &compute.ListDisksRequest{FolderId: c.folder, PageSize: 1}, priority(budget.List))
	if disks != nil && fault.Of(disks) != fault.Denied {
		return wrap(disks, "read the disks of folder %s", c.folder)
	}
	_, snapshots := c.snapshots.List(ctx, &compute.ListSnapshotsRequest{FolderId: c.folder, PageSize: 1}, priority(budget.List))
	err := errors.Join(wrap(disks, "read the disks of folder %s", c.folder), wrap(snapshots, "read the snapshots of folder %s", c.folder))
	if a := answerOf(err); a != nil && a.code == codes.PermissionDenied {
		return fmt.Errorf("the account lacks a right; compute.editor for the folder has all that are needed: %w", err)
	}
	return err
}

// CheckRegion returns fault.NoZone if the backend's zone has no disks.
func (c *Cloud) CheckRegion(ctx context.Context) error {
	return c.checkZone(ctx, c.zone, usualType)
}

// checkZone returns fault.NoZone if a zone has no disks of a type.
func (c *Cloud) checkZone(ctx context.Context, zone, diskType string) error {
	kind, err := c.diskTypes.Get(ctx, &compute.GetDiskTypeRequest{DiskTypeId: diskType})
	if err == nil && !slices.Contains(kind.GetZoneIds(), zone) {
		err = fmt.Errorf("the zone %s has no disks of the type %s, or does not exist: %w", zone, diskType, fault.NoZone)
	}
	return err
}

// Token is an IAM token.
type Token struct {
	Text string
	// Expires is when it expires; zero: unknown.
	Expires time.Time
}

const (
	// maxSecret is far longer than any token or authorized key.
	maxSecret = 16 << 10
	// exchangeTimeout is the time limit for getting a token, renewTimeout while the old one is still valid: all requests wait for it.
	exchangeTimeout, renewTimeout = 20 * time.Second, 2 * time.Second
	// maxUsed is how long a token is used at most, so that changed rights of its account take effect.
	maxUsed = time.Hour
	// pauseAfterFailure is the time between two attempts to get a new token while the old one is still valid.
	pauseAfterFailure = 30 * time.Second
)

// CheckCredentials checks the content of a credentials file: an authorized key of a service account as JSON, or an IAM token. Its error
// has no part of it.
func CheckCredentials(text string) (string, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return "", errors.New("it is empty")
	case len(text) > maxSecret:
		return "", errors.New("it is too long to be an authorized key or an IAM token")
	case isKey(text):
		_, err := keyOf(text)
		return text, err
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", errors.New("it holds neither an authorized key (JSON, as `yc iam key create` writes it) nor one IAM token")
	default:
		return text, nil
	}
}

func isKey(secret string) bool { return strings.HasPrefix(secret, "{") }

// keyOf parses an authorized key.
func keyOf(secret string) (credentials.ExchangeableCredentials, error) {
	key, err := iamkey.ReadFromJSONBytes([]byte(secret))
	switch {
	case err != nil: // whose text may repeat what it could not read
		return nil, errors.New("it is no authorized key: not the JSON that `yc iam key create` writes")
	case key.GetId() == "" || key.GetServiceAccountId() == "":
		return nil, errors.New("it is no authorized key of a service account: id or service_account_id is missing")
	}
	signer, err := credentials.ServiceAccountKey(key)
	if err != nil {
		return nil, errors.New("its private_key is not a private key in PEM form")
	}
	return signer, nil
}

// tokens returns the token for each request. It uses a replaced secret at once.
type tokens struct {
	// secret returns the content of the credentials file; "" means the instance's own account.
	secret func() (string, error)
	// machine returns a token of the instance's own account, exchange one for a signed JWT.
	machine  func(ctx context.Context) (Token, error)
	exchange func(ctx context.Context, jwt string) (Token, error)

	asking  mutex // guards what follows
	of      string
	current Token
	renew   time.Time
}

// mutex admits one goroutine at a time. Waiting for it ends with a context.
type mutex chan struct{}

func newMutex() mutex { return make(mutex, 1) }

func (g mutex) enter(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", fault.Unavailable, ctx.Err())
	}
}

func (g mutex) leave() { <-g }

// get returns a token. not is a token that the API has refused.
func (t *tokens) get(ctx context.Context, not string) (string, error) {
	secret, err := t.secret()
	if err != nil {
		return "", fmt.Errorf("%w: the credentials cannot be read: %w", fault.Unavailable, err)
	}
	if secret != "" && !isKey(secret) {
		return secret, nil
	}
	if err := t.asking.enter(ctx); err != nil {
		return "", err
	}
	defer t.asking.leave()
	usable := t.current.Text != "" && t.of == secret && t.current.Text != not &&
		(t.current.Expires.IsZero() || time.Now().Before(t.current.Expires))
	if usable && time.Now().Before(t.renew) {
		return t.current.Text, nil
	}
	limit := exchangeTimeout
	if usable {
		limit = renewTimeout
	}
	fresh, err := t.ask(ctx, secret, limit)
	if err != nil {
		if usable {
			t.renew = time.Now().Add(pauseAfterFailure)
			return t.current.Text, nil
		}
		return "", err
	}
	t.of, t.current, t.renew = secret, fresh, time.Now().Add(maxUsed)
	if left := time.Until(fresh.Expires); !fresh.Expires.IsZero() && left*3/4 < maxUsed {
		t.renew = time.Now().Add(left * 3 / 4)
	}
	return fresh.Text, nil
}

// ask gets a new token. It ends with its call; the next call tries again.
func (t *tokens) ask(ctx context.Context, secret string, limit time.Duration) (Token, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if secret == "" {
		token, err := t.machine(ctx)
		if err != nil {
			if fault.Of(err) == fault.None {
				err = fmt.Errorf("%w: %w", fault.Unavailable, err)
			}
			return Token{}, wrap(err, "ask for a token of the machine's service account")
		}
		return token, nil
	}
	key, err := keyOf(secret)
	if err != nil {
		return Token{}, fmt.Errorf("%w: the credentials: %w", fault.Denied, err)
	}
	request, err := key.IAMTokenRequest()
	if err != nil {
		return Token{}, fmt.Errorf("%w: the authorized key cannot sign", fault.Denied)
	}
	token, err := t.exchange(ctx, request.Token)
	switch a := answerOf(err); {
	case err == nil:
		return token, nil
	case a != nil && (a.code == codes.InvalidArgument || a.code == codes.NotFound || a.code == codes.FailedPrecondition):
		return Token{}, fmt.Errorf("the authorized key is not accepted; was it deleted, or its account?: %w: %s", fault.Denied, a.Error())
	default:
		return Token{}, before(err, "exchange the authorized key for a token")
	}
}
