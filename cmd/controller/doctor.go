package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/doctor"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// The patience of doctor, which a person waits for.
const (
	doctorMetadata = 5 * time.Second
	doctorAPI      = 20 * time.Second
)

const doctorUsage = `Usage: cloudblock-controller doctor FLAGS-OF-THE-PROGRAM [--output json]

Says what would keep the program with these flags from its work here, and what to do. It changes nothing.`

// runDoctor is the sub-command "doctor": with the flags of the program it says what is wrong where the program would run.
func runDoctor(ctx context.Context, args []string, environ driver.Environment, stdout io.Writer) error {
	cfg, output, err := parseDoctor(args, environ, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	var report doctor.Report
	if cfg.backend.perNode {
		for _, p := range cfg.Pools() {
			report.Pools(ctx, pool.Config{Name: p.Name, Dir: p.Dir, Node: cfg.NodeID, IDFile: cfg.PoolIDFile(p.Name)})
		}
	} else {
		cfg.examine(ctx, &report)
	}
	return report.Print(stdout, output)
}

func parseDoctor(args []string, environ driver.Environment, out io.Writer) (cfg config, output string, err error) {
	fs := cfg.flags()
	settings := driver.SettingsOf(fs, nodeSettings...) // not the flag of the sub-command alone
	own := func(fs *flag.FlagSet) { fs.StringVar(&output, "output", "table", "table or json") }
	err = driver.ParseCommand(fs, own, args, out, doctorUsage)
	if errors.Is(err, flag.ErrHelp) {
		return cfg, output, err
	}
	if err := errors.Join(err, settings.Read(fs, environ), cfg.validate(environ), doctor.CheckOutput(output)); err != nil {
		return cfg, output, fmt.Errorf("%w:\n%w", driver.ErrCommandLine, err)
	}
	return cfg, output, nil
}

// examine checks a cloud that is reached over the network. Each check needs what the one before has found.
func (c *config) examine(ctx context.Context, report *doctor.Report) {
	if _, err := c.token(); err != nil {
		report.Wrong("credentials", err, "put the credentials into that file; "+c.page("credentials")+" says which")
		return
	}
	if !c.examineMetadata(ctx, report) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, doctorAPI)
	defer cancel()
	backend, end, err := c.backend.open(ctx, *c, surroundings{log: zap.NewNop(), registry: prometheus.NewRegistry()})
	if err != nil {
		report.Wrong("api", err, "correct what the message names")
		return
	}
	defer func() { _ = end(context.WithoutCancel(ctx)) }()
	if c.examineAPI(ctx, backend, report) {
		c.examineRegion(ctx, backend, report)
		c.examineAccount(ctx, backend, report)
	}
}

// examineMetadata asks the metadata service for what the flags leave open.
func (c *config) examineMetadata(ctx context.Context, report *doctor.Report) bool {
	ctx, cancel := context.WithTimeout(ctx, doctorMetadata)
	defer cancel()
	const remedy = "let the pod reach 169.254.169.254, or set "
	var err error
	if c.region == "" {
		if c.region, err = regionOf(ctx, *c, zap.NewNop()); err != nil {
			report.Wrong("metadata", err, remedy+"REGION (--region)")
			return false
		}
		report.OK("metadata", "this machine is in %s", c.region)
	}
	if c.backend.locateFolder != nil {
		if err = c.backend.locateFolder(ctx, c); err != nil {
			report.Wrong("metadata", err, remedy+"the folder ("+c.backend.folderFlag+")")
			return false
		}
	}
	return true
}

// examineAPI proves the credentials and the rights, as far as reads do.
func (c *config) examineAPI(ctx context.Context, backend cloud.Cloud, report *doctor.Report) bool {
	err := backend.Check(ctx)
	switch {
	case err == nil:
		report.OK("credentials", "the cloud accepts them, with every right that a read can prove")
	case fault.Of(err) == fault.Denied || fault.Of(err) == fault.NotFound:
		remedy := "put a valid token or key into the Secret, or give it the rights of " + c.page("rights")
		if c.backend.folderFlag != "" {
			remedy += "; or correct the folder (" + c.backend.folderFlag + "), which may be another account's"
		}
		report.Wrong("credentials", err, remedy)
	default:
		report.Wrong("api", err, "look at the way to the API (DNS, proxy, firewall, --api-endpoint, --api-ca-file) and at the cloud's status page")
	}
	return err == nil
}

// examineAccount lists volumes until one is of this cluster.
func (c *config) examineAccount(ctx context.Context, backend cloud.Cloud, report *doctor.Report) {
	switch ids, err := volumesOf(ctx, backend, c.clusterID); {
	case err != nil:
		report.Warn("account", err, "run doctor again, or look at the cloud's status page")
	case len(ids) == 0:
		report.Warn("account", fmt.Errorf("it has no volume of the cluster %s", c.clusterID),
			"if the cluster has volumes, these are the credentials of another account, or --cluster-id is wrong")
	default:
		report.OK("account", "it has volumes of the cluster %s", c.clusterID)
	}
}

// examineRegion proves that the region has volumes.
func (c *config) examineRegion(ctx context.Context, backend cloud.Cloud, report *doctor.Report) {
	placed, ok := backend.(interface {
		CheckRegion(ctx context.Context) error
	})
	if !ok {
		return
	}
	if err := placed.CheckRegion(ctx); err != nil {
		report.Wrong("region", err, "set a region or zone that has volumes (REGION, --region), and run the nodes there")
		return
	}
	report.OK("region", "%s has volumes", c.region)
}

func (c *config) page(section string) string { return "docs/backends/" + c.Cloud + ".md#" + section }
