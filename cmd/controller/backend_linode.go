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
	if _, err := c.token(); err != nil {
		return nil, nil, err
	}
	region, err := regionOf(ctx, c, around.log)
	if err != nil {
		return nil, nil, err
	}
	var m linode.Metrics
	if m.Ops, m.Budget, err = around.metrics(); err != nil {
		return nil, nil, err
	}
	// Calls under way at shutdown may still finish, so only Close ends the backend.
	l, err := linode.New(context.WithoutCancel(ctx), linode.Config{
		Token: c.token, Endpoint: c.apiEndpoint, Transport: trusting(c, api.DefaultTransport()), Region: region,
		ClusterID: c.clusterID, KubernetesTags: c.linodeKubernetesTags, NamePrefix: c.namePrefix,
		Persist: linode.Persist(c.linodePersist), OperationTimeout: c.operationTimeout,
		Limits: c.apiLimits, UserAgent: "cloudblock-controller/" + version, Log: around.log, Metrics: m,
	})
	if err != nil {
		return nil, nil, err
	}
	return l, l.Close, nil
}
