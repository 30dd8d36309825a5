package main

import (
	"context"
	"errors"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

const usualLinodePersist = string(linode.PersistAuto)

func validateLinode(c *config) error {
	return errors.Join(c.validateRemote(),
		driver.InFlag("--tag or --cluster-id", linode.CheckTags(c.tags)),
		driver.InFlag("--linode-persist", linode.CheckPersist(linode.Persist(c.linodePersist))),
		driver.InFlag("--volume-name-prefix", linode.CheckPrefix(c.namePrefix)),
		driver.InFlag("--region", linode.CheckRegion(c.region)))
}

func openLinode(ctx context.Context, c config, around surroundings) (cloud.Cloud, closer, error) {
	cfg, err := c.remote(ctx, around)
	if err != nil {
		return nil, nil, err
	}
	// Calls under way at shutdown may still finish, so only Close ends the backend.
	l, err := linode.New(context.WithoutCancel(ctx), linode.Config{
		Config: cfg, Transport: trusting(c, api.DefaultTransport()), KubernetesTags: c.linodeKubernetesTags, Persist: linode.Persist(c.linodePersist),
	})
	if err != nil {
		return nil, nil, err
	}
	return l, l.Close, nil
}
