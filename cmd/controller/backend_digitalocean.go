package main

import (
	"context"
	"errors"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

func validateDigitalOcean(c *config) error {
	return errors.Join(c.validateRemote(),
		driver.InFlag("--tag or --cluster-id", digitalocean.CheckTags(c.tags)),
		driver.InFlag("--volume-name-prefix", digitalocean.CheckPrefix(c.namePrefix)),
		driver.InFlag("--region", digitalocean.CheckRegion(c.region)))
}

func openDigitalOcean(ctx context.Context, c config, around surroundings) (cloud.Cloud, closer, error) {
	cfg, err := c.remote(ctx, around)
	if err != nil {
		return nil, nil, err
	}
	// Calls under way at shutdown may still finish, so only Close ends the backend.
	d, err := digitalocean.New(context.WithoutCancel(ctx), digitalocean.Config{Config: cfg, Transport: trusting(c, api.DefaultTransport())})
	if err != nil {
		return nil, nil, err
	}
	return d, d.Close, nil
}
