package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/machine"
)

// usualYandexOperations is how many operations a folder runs at a time, unless its quota was raised.
const usualYandexOperations = yandex.DefaultOperations

func validateYandex(c *config) error {
	return errors.Join(c.validateRemote(),
		driver.InFlag("--tag or --cluster-id", yandex.CheckTags(c.tags)),
		driver.InFlag("--volume-name-prefix", yandex.CheckPrefix(c.namePrefix)),
		driver.InFlag("--region", yandex.CheckZone(c.region)),
		driver.InFlag("--yandex-folder-id", yandex.CheckFolder(c.yandexFolder)))
}

func openYandex(ctx context.Context, c config, around surroundings) (cloud.Cloud, closer, error) {
	cfg, err := c.remote(ctx, around)
	if err != nil {
		return nil, nil, err
	}
	folder, err := folderOf(ctx, c, around.log)
	if err != nil {
		return nil, nil, err
	}
	// Calls under way at shutdown may still finish, so only Close ends the backend.
	y, err := yandex.New(context.WithoutCancel(ctx), yandex.Config{
		Config: cfg, RootCAs: c.caPool, Folder: folder, VendorNames: c.Names.Vendor != nil, Operations: c.yandexOperations,
		MachineToken: func(ctx context.Context) (yandex.Token, error) {
			token, expires, err := machine.YandexToken(ctx, c.MetadataEndpoint)
			return yandex.Token{Text: token, Expires: expires}, err
		},
	})
	if err != nil {
		return nil, nil, err
	}
	return y, y.Close, nil
}

// locateYandex fills in the folder.
func locateYandex(ctx context.Context, c *config) (err error) {
	c.yandexFolder, err = folderOf(ctx, *c, zap.NewNop())
	return err
}

// folderOf is the folder that the volumes are in: what --yandex-folder-id says, or else the one of this machine.
func folderOf(ctx context.Context, c config, log *zap.Logger) (string, error) {
	if c.yandexFolder != "" {
		return c.yandexFolder, nil
	}
	log.Info("asking the metadata service for the folder, since there is no --yandex-folder-id", zap.String("at", cmp.Or(c.MetadataEndpoint, machine.Usual)), zap.Duration("for_at_most", metadataPatience))
	asking, cancel := context.WithTimeout(ctx, metadataPatience)
	defer cancel()
	folder, err := machine.YandexFolder(asking, c.MetadataEndpoint)
	if err != nil {
		return "", fmt.Errorf("which folder is this? Give --yandex-folder-id where there is no metadata service: %w", err)
	}
	return folder, nil
}
