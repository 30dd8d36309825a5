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

// Storage returns the health of the pools' disks. While one pool can be used, the problems of others are degradations.
func (h poolHealth) Storage(ctx context.Context) ([]mount.Health, error) {
	usable, missing := h.pools.Pools(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var found []mount.Health
	if missing != nil {
		found = append(found, mount.Health{Severity: mount.Inaccessible, Reason: "PoolUnavailable",
			Message: strings.ReplaceAll(missing.Error(), "\n", "; ")})
	}
	for _, p := range usable {
		more, err := h.disk(ctx, p)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	if len(usable) > 1 || len(usable) > 0 && missing != nil {
		for i := range found {
			found[i].Severity = mount.Degraded
		}
	}
	return found, nil
}

// disk returns the health of the disk of one pool.
func (h poolHealth) disk(ctx context.Context, p pool.Storage) ([]mount.Health, error) {
	var found []mount.Health
	if _, mounted := p.(*files.Pool); mounted {
		table, err := h.mounts.Table()
		if err != nil {
			return nil, err
		}
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
