package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/machine"
)

const (
	// metadataTimeout bounds the requests to the metadata service at the start; then the program exits, and its
	// supervisor restarts it.
	metadataTimeout = time.Minute
	// fallbackTimeout replaces metadataTimeout where the machine itself has a fallback.
	fallbackTimeout = 10 * time.Second
)

// limit is how many volumes this machine can have.
type limit struct {
	// max is the number that the flags give; 0: the other fields count.
	max int64
	// machine has the slots. reserved of them are left to others, and foreign counts the disks that are not volumes.
	machine  machine.Info
	reserved int64
	foreign  func() (int64, error)
	// manyDisks is the file that has the id of this machine if an attach said that it takes many disks. With another id
	// the file came with a copy of another machine's disk.
	manyDisks string
}

// volumes returns how many volumes the machine can have now.
func (l limit) volumes() (int64, error) {
	if l.max != 0 {
		return l.max, nil
	}
	others, err := l.foreign()
	if err != nil {
		return 0, err
	}
	return availableSlots(l.places(), others, l.reserved), nil
}

// places returns what is sure without the controller, and more where the controller has said so.
func (l limit) places() int64 {
	if machine, err := os.ReadFile(l.manyDisks); err == nil && string(machine) == l.machine.ID {
		return max(l.machine.Places, l.machine.ManyPlaces)
	}
	return l.machine.Places
}

// learn writes down that this machine takes many disks. A file that is lost or torn is written again with the next stage.
func (l limit) learn() error {
	if machine, err := os.ReadFile(l.manyDisks); err == nil && string(machine) == l.machine.ID {
		return nil
	}
	if err := os.WriteFile(l.manyDisks, []byte(l.machine.ID), 0o600); err != nil {
		return fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	return nil
}

// availableSlots returns how many volumes a machine can have in addition to its other disks. It is never 0, which
// would mean that there is no limit (failure A6 of the catalogue): without a free slot the cloud refuses the first
// attach, and the pod is rescheduled.
func availableSlots(places, others, reserved int64) int64 { return max(1, places-others-reserved) }

// identify returns the id, the zone and the volume limit of this machine: the flags, and for what they leave
// open the metadata service.
func identify(ctx context.Context, cfg config, l limit, log *zap.Logger) (driver.NodeInfo, limit, error) {
	info := driver.NodeInfo{ID: cfg.NodeID, Zone: cfg.zone}
	l.max, l.reserved = cfg.MaxVolumes, cfg.reservedSlots
	if info.ID == "" || info.Zone == "" || l.max == 0 {
		machine, err := readMachine(ctx, cfg, log)
		if err != nil {
			return info, l, fmt.Errorf("which machine is this? Give --node-id and --zone where there is no metadata service: %w", err)
		}
		if info.ID == "" {
			info.ID = machine.ID
		}
		if info.Zone == "" {
			info.Zone = machine.Zone
		}
		l.machine = machine
	}
	l.machine.ID = info.ID
	var err error
	info.MaxVolumes, err = l.volumes()
	return info, l, err
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
