package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/doctor"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// examined is the configuration that the checks examine.
type examined struct {
	*config

	log *zap.Logger
	// cloud and end are set by findAccess.
	cloud cloud.Cloud
	end   closer
}

// checks returns the checks of the start and of doctor. They set the values that the flags leave open.
func (e *examined) checks() []doctor.Check {
	if e.backend.perNode {
		return []doctor.Check{doctor.Socket(e.Endpoint), doctor.Pools(e.pools())}
	}
	const patience = 20 * time.Second
	return []doctor.Check{
		doctor.Socket(e.Endpoint),
		{Name: "credentials", Find: e.findFile, Refuses: true},
		{Name: "metadata", Find: e.findPlace, Needs: "credentials", Refuses: true, Patience: 5 * time.Second},
		{Name: "credentials", Find: e.findAccess, Needs: "metadata", DoctorOnly: "the program serves all the same, and /readyz asks it", Patience: patience},
		{Name: "region", Find: e.findRegion, Needs: "credentials", DoctorOnly: "a create says the same", Patience: patience},
		{Name: "account", Find: e.findVolumes, Needs: "credentials", DoctorOnly: "it may list all volumes of the account", Patience: patience},
	}
}

// runDoctor is the sub-command "doctor".
func runDoctor(ctx context.Context, args []string, environ driver.Environment, stdout io.Writer) error {
	e := examined{config: &config{}, log: zap.NewNop()}
	defer func() {
		if e.end != nil {
			_ = e.end(context.WithoutCancel(ctx)) // the backend has only read
		}
	}()
	validate := func() error { return e.validate(environ) }
	return doctor.Command{Flags: e.flags(), Others: nodeSettings, Validate: validate, Checks: e.checks}.Run(ctx, args, environ, stdout)
}

func (e *examined) findFile(_ context.Context, r *doctor.Report) {
	if _, err := e.token(); err != nil {
		r.Wrong("credentials", err, "put the credentials into that file; "+e.page("credentials")+" says which")
	}
}

// findPlace asks the metadata service once for the values that the flags leave open, because a second backend is opened with each
// new credentials.
func (e *examined) findPlace(ctx context.Context, r *doctor.Report) {
	remedy := "let the pod reach 169.254.169.254, or set REGION (--region)"
	var err error
	if e.region, err = regionOf(ctx, *e.config, e.log); err == nil && e.backend.locateFolder != nil {
		remedy = "let the pod reach 169.254.169.254, or set the folder (" + e.backend.folderFlag + ")"
		err = e.backend.locateFolder(ctx, e.config, e.log)
	}
	r.Result("metadata", "volumes are made in "+e.region, err, remedy)
}

// findAccess proves the credentials and the rights, as far as reads can.
func (e *examined) findAccess(ctx context.Context, r *doctor.Report) {
	var err error
	if e.cloud, e.end, err = e.backend.open(ctx, *e.config, surroundings{log: e.log, registry: prometheus.NewRegistry()}); err != nil {
		r.Wrong("api", err, "correct what the message names")
		return
	}
	switch err := e.cloud.Check(ctx); {
	case err == nil:
		r.OK("credentials", "the cloud accepts them, with every right that a read can prove")
	case fault.Of(err) == fault.Denied || fault.Of(err) == fault.NotFound:
		remedy := "put a valid token or key into the Secret, or give it the rights of " + e.page("rights")
		if e.backend.folderFlag != "" {
			remedy += "; or correct the folder (" + e.backend.folderFlag + "), which may be another account's"
		}
		r.Wrong("credentials", err, remedy)
	default:
		r.Wrong("api", err, "look at the way to the API (DNS, proxy, firewall, --api-endpoint, --api-ca-file) and at the cloud's status page")
	}
}

// findRegion proves that the region has volumes.
func (e *examined) findRegion(ctx context.Context, r *doctor.Report) {
	placed, ok := e.cloud.(interface {
		CheckRegion(ctx context.Context) error
	})
	if ok {
		r.Result("region", e.region+" has volumes", placed.CheckRegion(ctx), "set a region or zone that has volumes (REGION, --region), and run the nodes there")
	}
}

// findVolumes lists volumes until it finds one of this cluster.
func (e *examined) findVolumes(ctx context.Context, r *doctor.Report) {
	switch ids, err := volumesOf(ctx, e.cloud, e.clusterID); {
	case err != nil:
		r.Warn("account", err, "run doctor again, or look at the cloud's status page")
	case len(ids) == 0:
		r.Warn("account", fmt.Errorf("it has no volume of the cluster %s", e.clusterID),
			"if the cluster has volumes, these are the credentials of another account, or --cluster-id is wrong")
	default:
		r.OK("account", "it has volumes of the cluster %s", e.clusterID)
	}
}

func (c *config) page(section string) string { return "docs/backends/" + c.Cloud + ".md#" + section }
