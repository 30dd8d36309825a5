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
	// metadataPatience is how long the metadata service is asked at the start; then the program ends, and is
	// started again.
	metadataPatience = time.Minute
	// shortPatience is how long it is asked where the machine itself knows what is missing.
	shortPatience = 10 * time.Second
)

// identify says which machine this is, where, and how many volumes it can have: what the flags say, and what
// the metadata service says beyond that. foreign counts the disks that are no volumes.
func identify(ctx context.Context, cfg config, foreign func() (int64, error), log *zap.Logger) (driver.NodeInfo, error) {
	info := driver.NodeInfo{ID: cfg.NodeID, Zone: cfg.zone, MaxVolumes: cfg.MaxVolumes}
	if info.ID != "" && info.Zone != "" && info.MaxVolumes != 0 {
		return info, nil
	}
	machine, err := whichMachine(ctx, cfg, log)
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
		info.MaxVolumes = slotsLeft(machine.Places, others, cfg.reservedSlots)
		log.Info("places for disks", zap.Int64("all", machine.Places), zap.Int64("other_disks", others), zap.Int64("reserved", cfg.reservedSlots))
	}
	return info, nil
}

// slotsLeft is how many volumes a machine can have beside its other disks. It is never 0, which would mean that
// there is no limit (failure A6 of the catalogue): where nothing is left the cloud refuses the first attach, and
// the pod goes elsewhere.
func slotsLeft(places, others, reserved int64) int64 { return max(1, places-others-reserved) }

// whichMachine asks the metadata service, and where there is none the machine itself. The region is known to
// the service alone.
func whichMachine(ctx context.Context, cfg config, log *zap.Logger) (metadata.Machine, error) {
	patience := metadataPatience
	alone := cfg.disks.itself != nil && cfg.zone != ""
	if alone {
		patience = shortPatience
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	machine, err := cfg.disks.machine(asking, cfg.MetadataEndpoint)
	if err == nil || !alone || ctx.Err() != nil {
		return machine, err
	}
	machine, selfErr := cfg.disks.itself()
	if selfErr != nil {
		return machine, errors.Join(err, selfErr)
	}
	log.Warn("there is no metadata service; what the machine knows of itself is used", zap.Error(err))
	return machine, nil
}
