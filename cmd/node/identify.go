package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/machine"
)

const (
	// metadataTimeout is how long the metadata service is asked at the start. Then the program exits, and its supervisor restarts
	// it. The kubelet's liveness probe stops a program without a socket after 50 s.
	metadataTimeout = 40 * time.Second
	// fallbackTimeout replaces metadataTimeout if the machine itself has a fallback.
	fallbackTimeout = 10 * time.Second
)

// identify returns the id, the zone and the volume limit of this machine. They come from the flags, and if these leave something
// open, from the metadata service.
func identify(ctx context.Context, cfg config, foreign func() (int64, error), log *zap.Logger) (driver.NodeInfo, machine.Limit, error) {
	info := driver.NodeInfo{ID: cfg.NodeID, Zone: cfg.zone}
	limit := machine.Limit{Max: cfg.MaxVolumes, Reserved: cfg.reservedSlots, Foreign: foreign}
	if info.ID == "" || info.Zone == "" || limit.Max == 0 {
		told, err := readMachine(ctx, cfg, log)
		if err != nil {
			return info, limit, fmt.Errorf("which machine is this? Give --node-id, --zone and --max-volumes where there is no metadata service: %w", err)
		}
		info.ID, info.Zone = cmp.Or(info.ID, told.ID), cmp.Or(info.Zone, told.Zone)
		limit.MaxDisks = told.MaxDisks
	}
	var err error
	info.MaxVolumes, err = limit.Volumes()
	return info, limit, err
}

// readMachine reads the metadata service and, if that fails, the fallback of the cloud. Only the service has the
// region, so the fallback requires --zone.
func readMachine(ctx context.Context, cfg config, log *zap.Logger) (machine.Info, error) {
	timeout := metadataTimeout
	hasFallback := cfg.disks.fallback != nil && cfg.zone != ""
	if hasFallback {
		timeout = fallbackTimeout
	}
	log.Info("asking the metadata service which machine this is", zap.String("at", cmp.Or(cfg.MetadataEndpoint, machine.Usual)), zap.Duration("for_at_most", timeout))
	metadataCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	info, err := cfg.disks.machine(metadataCtx, cfg.MetadataEndpoint)
	if err == nil || !hasFallback || ctx.Err() != nil {
		return info, err
	}
	info, fallbackErr := cfg.disks.fallback()
	if fallbackErr != nil {
		return info, errors.Join(err, fallbackErr)
	}
	log.Warn("there is no metadata service; using the fallback of this cloud", zap.Error(err))
	return info, nil
}
