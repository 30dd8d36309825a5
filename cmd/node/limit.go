package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/metadata"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

const (
	// metadataTimeout bounds the requests to the metadata service at the start; then the program exits, and its
	// supervisor restarts it.
	metadataTimeout = time.Minute
	// fallbackTimeout replaces metadataTimeout where the machine itself has a fallback.
	fallbackTimeout = 10 * time.Second
)

// identify returns the id, the zone and the volume limit of this machine: the flags, and for what they leave
// open the metadata service. foreign counts the disks that are not volumes.
func identify(ctx context.Context, cfg config, foreign func() (int64, error), log *zap.Logger) (driver.NodeInfo, error) {
	info := driver.NodeInfo{ID: cfg.NodeID, Zone: cfg.zone, MaxVolumes: cfg.MaxVolumes}
	if info.ID != "" && info.Zone != "" && info.MaxVolumes != 0 {
		return info, nil
	}
	machine, err := readMachine(ctx, cfg, log)
	if err != nil {
		return info, fmt.Errorf("which machine is this? Give --node-id and --zone where there is no metadata service: %w", err)
	}
	if info.ID == "" {
		info.ID = machine.ID
	}
	if info.Zone == "" {
		info.Zone = machine.Zone
	}
	if info.MaxVolumes == 0 {
		others, err := foreign()
		if err != nil {
			return info, err
		}
		info.MaxVolumes = availableSlots(machine.Places, others, cfg.reservedSlots)
		log.Info("places for disks", zap.Int64("all", machine.Places), zap.Int64("other_disks", others), zap.Int64("reserved", cfg.reservedSlots))
	}
	return info, nil
}

// availableSlots returns how many volumes a machine can have in addition to its other disks. It is never 0, which
// would mean that there is no limit (failure A6 of the catalogue): without a free slot the cloud refuses the first
// attach, and the pod is rescheduled.
func availableSlots(places, others, reserved int64) int64 { return max(1, places-others-reserved) }

// readMachine reads the metadata service and, if that fails, the fallback of the cloud. Only the service has the
// region, so the fallback requires --zone.
func readMachine(ctx context.Context, cfg config, log *zap.Logger) (metadata.Machine, error) {
	timeout := metadataTimeout
	hasFallback := cfg.disks.fallback != nil && cfg.zone != ""
	if hasFallback {
		timeout = fallbackTimeout
	}
	metadataCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	machine, err := cfg.disks.machine(metadataCtx, cfg.MetadataEndpoint)
	if err == nil || !hasFallback || ctx.Err() != nil {
		return machine, err
	}
	machine, fallbackErr := cfg.disks.fallback()
	if fallbackErr != nil {
		return machine, errors.Join(err, fallbackErr)
	}
	log.Warn("there is no metadata service; using the fallback of this cloud", zap.Error(err))
	return machine, nil
}
