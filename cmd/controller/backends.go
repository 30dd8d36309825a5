package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/machine"
)

// backend is a value of --cloud.
type backend struct {
	// perNode: the program runs once on every node, and reports the node on its socket.
	perNode bool
	// tokenVariable and endpointVariable are the environment variables of the vendor's own driver.
	tokenVariable, endpointVariable string
	// folderVariable is the environment variable in which the vendor's deployment has the folder. folderFlag is the flag for the
	// folder, and locateFolder sets the folder if neither does; empty and nil: the cloud has no folders.
	folderVariable, folderFlag string
	locateFolder               func(ctx context.Context, c *config, log *zap.Logger) error
	// checkSecret refuses invalid credentials; nil: they are one token.
	checkSecret func(text string) (string, error)
	// ownAccount: without credentials the machine's own account is used.
	ownAccount bool
	// machine asks the metadata service on which machine this program runs.
	machine machine.Source
	// validate checks the flags of this backend, and reports all mistakes.
	validate func(c *config) error
	// open opens the backend with flags that have been checked, and returns a function that ends its work at the end of the
	// program.
	open func(ctx context.Context, c config, around surroundings) (cloud.Cloud, closer, error)
	// snapshotsAreVolumes: a snapshot costs as much as a volume.
	snapshotsAreVolumes bool
	// everything changes the flags so that objects are listed that the program has made with others; nil: none would be missing.
	everything func(c *config)
	// prices reads what a GiB of a volume costs a month, from a cloud that open returned: usually, and in regions with a price of their
	// own. nil: the cloud does not say.
	prices func(ctx context.Context, c cloud.Cloud) (usual float64, regions map[string]float64, err error)
	// relocate moves a volume to another zone, in a cloud that open returned, and calls step with what it waits for next. nil: the cloud
	// moves no volumes.
	relocate func(ctx context.Context, c cloud.Cloud, r relocation, step func(what string)) error
}

// relocation is a volume and where it is moved; group is the placement group there, if it is in one.
type relocation struct{ volume, zone, group string }

// surroundings are what the program passes to each backend.
type surroundings struct {
	log      *zap.Logger
	registry prometheus.Registerer
}

// remote returns the configuration that all backends of cloud APIs share.
func (c config) remote(ctx context.Context, around surroundings) (cfg block.Config, err error) {
	cfg = block.Config{
		Token: c.token, Endpoint: c.apiEndpoint, ClusterID: c.clusterID, NamePrefix: c.namePrefix,
		OperationTimeout: c.operationTimeout, Limits: c.apiLimits, UserAgent: "cloudblock-controller/" + version, Log: around.log,
	}
	if _, err = c.token(); err != nil {
		return cfg, err
	}
	if cfg.Region, err = regionOf(ctx, c, around.log); err != nil {
		return cfg, err
	}
	if cfg.Metrics.Ops, err = ops.NewMetrics(around.registry); err != nil {
		return cfg, err
	}
	cfg.Metrics.Budget, err = budget.NewMetrics(around.registry)
	return cfg, err
}

// remoteCloud is a backend of a cloud's API.
type remoteCloud interface {
	cloud.Cloud

	Close(ctx context.Context) error
}

// openRemote returns backend.open for a backend that create returns.
func openRemote(create func(ctx context.Context, c config, cfg block.Config) (remoteCloud, error)) func(context.Context, config, surroundings) (cloud.Cloud, closer, error) {
	return func(ctx context.Context, c config, around surroundings) (cloud.Cloud, closer, error) {
		cfg, err := c.remote(ctx, around)
		if err == nil && c.backend.locateFolder != nil {
			err = c.backend.locateFolder(ctx, &c, around.log)
		}
		if err != nil {
			return nil, nil, err
		}
		// Calls under way at shutdown may still finish, so only Close ends the backend.
		b, err := create(context.WithoutCancel(ctx), c, cfg)
		if err != nil {
			return nil, nil, err
		}
		return b, b.Close, nil
	}
}

// closer ends the pending work of a backend, as long as its context lasts.
type closer func(ctx context.Context) error

// backends has all backends by the value of --cloud. Only this file imports them.
var backends = map[string]backend{
	"digitalocean": {
		tokenVariable:    "DIGITALOCEAN_ACCESS_TOKEN",
		endpointVariable: "DIGITALOCEAN_API_URL",
		machine:          machine.DigitalOcean,
		validate:         validateDigitalOcean,
		open:             openRemote(newDigitalOcean),
	},
	"linode": {
		tokenVariable:    "LINODE_TOKEN",
		endpointVariable: "LINODE_URL",
		machine:          machine.Linode,
		validate:         validateLinode,
		open:             openRemote(newLinode),

		snapshotsAreVolumes: true,
		everything:          func(c *config) { c.linodeSnapshots = linodeClones },
		prices: func(ctx context.Context, c cloud.Cloud) (float64, map[string]float64, error) {
			return c.(*linode.Cloud).Prices(ctx)
		},
	},
	"local": {
		perNode:  true,
		validate: (*config).validateLocal,
		open: func(ctx context.Context, c config, around surroundings) (cloud.Cloud, closer, error) {
			l, err := local.New(ctx, local.Config{Pools: c.pools(), Node: c.NodeID, Log: around.log})
			if err != nil {
				return nil, nil, err
			}
			return l, l.Close, register(around.registry, newPoolMetrics(l.Usage, around.log))
		},
	},
	"yandex": {
		tokenVariable:  "YANDEX_AUTH_KEYS",
		folderVariable: "YANDEX_FOLDER_ID",
		folderFlag:     "--yandex-folder-id",
		locateFolder:   locateYandex,
		checkSecret:    yandex.CheckCredentials,
		ownAccount:     true,
		machine:        machine.YandexIdentity,
		validate:       validateYandex,
		open:           openRemote(newYandex),
		relocate: func(ctx context.Context, c cloud.Cloud, r relocation, step func(string)) error {
			return c.(*yandex.Cloud).Relocate(ctx, yandex.Relocation{Disk: cloud.VolumeID(r.volume), Zone: r.zone, Group: r.group, Step: step})
		},
	},
}

// metadataPatience is how long the program asks the metadata service at its start. The service may become reachable later than the
// program; without one the program reports that soon.
const metadataPatience = 20 * time.Second

// regionOf returns the region of volumes whose request names none: --region, or else the region of the machine.
func regionOf(ctx context.Context, c config, log *zap.Logger) (string, error) {
	if c.region != "" {
		return c.region, nil
	}
	log.Info("asking the metadata service for the region, since there is no --region", zap.String("at", cmp.Or(c.MetadataEndpoint, machine.Usual)), zap.Duration("for_at_most", metadataPatience))
	asking, cancel := context.WithTimeout(ctx, metadataPatience)
	defer cancel()
	machine, err := c.backend.machine(asking, c.MetadataEndpoint)
	if err != nil {
		return "", fmt.Errorf("which region is this? Give --region where there is no metadata service: %w", err)
	}
	return machine.Zone, nil
}

// transport returns the transport of an API over HTTP. It trusts the certificates of --api-ca-file, if that is set.
func (c config) transport() *http.Transport {
	transport := api.DefaultTransport()
	if c.caPool != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: c.caPool, MinVersion: tls.VersionTLS12}
	}
	return transport
}

func validateDigitalOcean(c *config) error {
	return errors.Join(c.validateRemote(),
		driver.InFlag("--tag or --cluster-id", digitalocean.CheckTags(c.tags)),
		driver.InFlag("--volume-name-prefix", digitalocean.CheckPrefix(c.namePrefix)),
		driver.InFlag("--region", digitalocean.CheckRegion(c.region)))
}

func newDigitalOcean(ctx context.Context, c config, cfg block.Config) (remoteCloud, error) {
	return digitalocean.New(ctx, digitalocean.Config{Config: cfg, Transport: c.transport()})
}

const usualLinodePersist = string(linode.PersistAuto)

// The values of --linode-snapshots.
const noLinodeSnapshots, linodeClones = "off", "clones"

func validateLinode(c *config) error {
	return errors.Join(c.validateRemote(),
		driver.InFlag("--tag or --cluster-id", linode.CheckTags(c.tags)),
		driver.InFlag("--linode-persist", linode.CheckPersist(linode.Persist(c.linodePersist))),
		driver.InFlag("--linode-snapshots", checkLinodeSnapshots(c.linodeSnapshots)),
		driver.InFlag("--volume-name-prefix", linode.CheckPrefix(c.namePrefix)),
		driver.InFlag("--region", linode.CheckRegion(c.region)))
}

func checkLinodeSnapshots(value string) error {
	if value != noLinodeSnapshots && value != linodeClones {
		return fmt.Errorf("%q: %s or %s: %w", value, noLinodeSnapshots, linodeClones, fault.InvalidArgument)
	}
	return nil
}

func newLinode(ctx context.Context, c config, cfg block.Config) (remoteCloud, error) {
	return linode.New(ctx, linode.Config{
		Config: cfg, Transport: c.transport(), KubernetesTags: c.linodeKubernetesTags, Persist: linode.Persist(c.linodePersist),
		Snapshots: c.linodeSnapshots == linodeClones,
	})
}

// usualYandexOperations is how many operations a folder runs at a time, unless its quota was raised.
const usualYandexOperations = yandex.DefaultOperations

func validateYandex(c *config) error {
	return errors.Join(c.validateRemote(),
		driver.InFlag("--tag or --cluster-id", yandex.CheckTags(c.tags)),
		driver.InFlag("--volume-name-prefix", yandex.CheckPrefix(c.namePrefix)),
		driver.InFlag("--region", yandex.CheckZone(c.region)),
		driver.InFlag("--yandex-folder-id", yandex.CheckFolder(c.yandexFolder)))
}

func newYandex(ctx context.Context, c config, cfg block.Config) (remoteCloud, error) {
	return yandex.New(ctx, yandex.Config{
		Config: cfg, RootCAs: c.caPool, Folder: c.yandexFolder, VendorNames: c.Names.Vendor != nil, Operations: c.yandexOperations,
		MachineToken: func(ctx context.Context) (yandex.Token, error) {
			token, expires, err := machine.YandexToken(ctx, c.MetadataEndpoint)
			return yandex.Token{Text: token, Expires: expires}, err
		},
	})
}

// locateYandex sets the folder to that of the machine, unless --yandex-folder-id sets it.
func locateYandex(ctx context.Context, c *config, log *zap.Logger) (err error) {
	if c.yandexFolder != "" {
		return nil
	}
	log.Info("asking the metadata service for the folder, since there is no --yandex-folder-id", zap.String("at", cmp.Or(c.MetadataEndpoint, machine.Usual)), zap.Duration("for_at_most", metadataPatience))
	asking, cancel := context.WithTimeout(ctx, metadataPatience)
	defer cancel()
	if c.yandexFolder, err = machine.YandexFolder(asking, c.MetadataEndpoint); err != nil {
		return fmt.Errorf("which folder is this? Give --yandex-folder-id where there is no metadata service: %w", err)
	}
	return nil
}
