package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/files"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/pools"
)

// volumeGroup is a pool of logical volumes. Holds reports whether a device with this UUID is one of them.
type volumeGroup interface{ Holds(uuid string) bool }

// poolHealth reports the health of the node's pools and of their volumes.
type poolHealth struct {
	pools  *pools.Set
	node   string
	mounts *mount.Mounter
}

// Volume returns the health of a volume's record and image, with the reasons and messages of the controller.
func (h poolHealth) Volume(ctx context.Context, volume string) ([]mount.Health, error) {
	handle, err := pool.ParseHandle(volume)
	if err != nil || handle.Node != h.node {
		return nil, errors.Join(fmt.Errorf("volume %.200q is not on node %s: %w", volume, h.node, fault.NotFound), err)
	}
	p, err := h.pools.Of(ctx, handle)
	if err != nil {
		return nil, err
	}
	entry, err := p.Get(ctx, handle.ID)
	if err != nil {
		return nil, err
	}
	const hint = "; look at it with `cloudblock-controller volumes`"
	switch entry.Kind {
	case pool.NoRecord:
		return []mount.Health{{Severity: mount.Inaccessible, Reason: "RecordMissing", Message: entry.Problem + "; the data is there, put the record back to use it"}}, nil
	case pool.NoImage:
		return []mount.Health{{Severity: mount.DataLoss, Reason: "ImageMissing", Message: entry.Problem + hint}}, nil
	case pool.Newer:
		return []mount.Health{{Severity: mount.Inaccessible, Reason: "RecordNewer", Message: entry.Problem}}, nil
	case pool.Damaged:
		if entry.Size == 0 {
			return []mount.Health{{Severity: mount.DataLoss, Reason: "ImageEmpty", Message: entry.Problem + hint}}, nil
		}
		return []mount.Health{{Severity: mount.Inaccessible, Reason: "Damaged", Message: entry.Problem + hint}}, nil
	}
	return nil, nil
}

// Disks returns the devices below the pool of a volume, or below all pools. Those of a logical volume are below its own device.
func (h poolHealth) Disks(table *mount.Table, volume string) (disks []uint64) {
	handle, err := pool.ParseHandle(volume)
	for _, p := range h.pools.Opened() {
		if _, group := p.(volumeGroup); volume == "" || err == nil && handle.Pool == p.Name() && !group {
			disks = append(disks, h.below(table, p)...)
		}
	}
	return disks
}

// below returns the devices of a pool's filesystem, or those below the active volumes of a volume group, the lowest first.
func (h poolHealth) below(table *mount.Table, p pool.Storage) (disks []uint64) {
	sysfs := h.mounts.Sysfs
	switch p := p.(type) {
	case *files.Pool:
		if at, err := table.MountOf(p.Dir()); err == nil {
			disks = append(sysfs.Below(at.Device), at.Device)
		}
	case volumeGroup:
		for _, device := range sysfs.Mapped(p.Holds) {
			disks = append(disks, sysfs.Below(device)...)
		}
	}
	return disks
}

// Storage returns the health of the pools' disks. While one pool can be used, the problems of others are degradations. It does not
// touch a pool with a disk that is stalled.
func (h poolHealth) Storage(ctx context.Context) ([]mount.Health, error) {
	table, err := h.mounts.Table()
	if err != nil {
		return nil, err
	}
	var found []mount.Health
	var stalled []string
	for _, p := range h.pools.Opened() {
		for _, more := range h.mounts.Stalled(h.below(table, p)) {
			more.Message = fmt.Sprintf("the pool in %s: %s", p.Location(), more.Message)
			found, stalled = append(found, more), append(stalled, p.Name())
		}
	}
	usable, missing := h.pools.Pools(ctx, stalled...)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if missing != nil {
		found = append(found, mount.Health{Severity: mount.Inaccessible, Reason: "PoolUnavailable",
			Message: strings.ReplaceAll(missing.Error(), "\n", "; ")})
	}
	for _, p := range usable {
		more, err := h.disk(ctx, table, p)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	if len(usable) > 1 || len(usable) > 0 && (missing != nil || len(stalled) > 0) {
		for i := range found {
			found[i].Severity = mount.Degraded
		}
	}
	return found, nil
}

// disk returns the health of the disk of one pool.
func (h poolHealth) disk(ctx context.Context, table *mount.Table, p pool.Storage) ([]mount.Health, error) {
	var found []mount.Health
	if _, mounted := p.(*files.Pool); mounted {
		at, err := table.MountOf(p.Dir())
		if err != nil {
			return nil, err
		}
		if found, err = h.mounts.Health(ctx, at); err != nil {
			return nil, err
		}
	}
	free, err := p.Free(ctx)
	if err != nil {
		return nil, err
	}
	if free == 0 {
		found = append(found, mount.Health{Severity: mount.Degraded, Reason: "PoolFull",
			Message: fmt.Sprintf("the pool in %s has no space for another volume, snapshot or growth; existing volumes keep their reservations", p.Location())})
	}
	return found, nil
}
