package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// poolHealth reports the condition of the pool and of its volumes.
type poolHealth struct {
	pool   *pool.Pool
	dir    string
	mounts *mounter.Mounter
}

// Volume returns the troubles of a volume's record and image, with the reasons and messages of the controller.
func (h poolHealth) Volume(ctx context.Context, volume string) ([]mounter.Trouble, error) {
	handle, err := pool.ParseHandle(volume)
	if err != nil || handle.Node != h.pool.Node() {
		return nil, errors.Join(fmt.Errorf("volume %.200q is not on node %s: %w", volume, h.pool.Node(), fault.NotFound), err)
	}
	entry, err := h.pool.Get(ctx, handle.ID)
	if err != nil {
		return nil, err
	}
	const hint = "; look at it with `cloudblock-controller volumes`"
	switch entry.Kind {
	case pool.NoRecord:
		return []mounter.Trouble{{Severity: mounter.Inaccessible, Reason: "RecordMissing", Message: entry.Problem + "; the data is there, put the record back to use it"}}, nil
	case pool.NoImage:
		return []mounter.Trouble{{Severity: mounter.DataLoss, Reason: "ImageMissing", Message: entry.Problem + hint}}, nil
	case pool.Newer:
		return []mounter.Trouble{{Severity: mounter.Inaccessible, Reason: "RecordNewer", Message: entry.Problem}}, nil
	case pool.Damaged:
		if entry.Size == 0 {
			return []mounter.Trouble{{Severity: mounter.DataLoss, Reason: "ImageEmpty", Message: entry.Problem + hint}}, nil
		}
		return []mounter.Trouble{{Severity: mounter.Inaccessible, Reason: "Damaged", Message: entry.Problem + hint}}, nil
	}
	return nil, nil
}

// Storage returns the troubles of the pool's disk.
func (h poolHealth) Storage(ctx context.Context) ([]mounter.Trouble, error) {
	if err := h.pool.Check(ctx); err != nil {
		return []mounter.Trouble{{Severity: mounter.Inaccessible, Reason: "PoolUnavailable", Message: err.Error()}}, nil
	}
	table, err := h.mounts.Table()
	if err != nil {
		return nil, err
	}
	at, err := table.MountOf(h.dir)
	if err != nil {
		return nil, err
	}
	found, err := h.mounts.Troubles(ctx, at)
	if err != nil {
		return nil, err
	}
	free, err := h.pool.Free(ctx)
	if err != nil {
		return nil, err
	}
	if free == 0 {
		found = append(found, mounter.Trouble{Severity: mounter.Degraded, Reason: "PoolFull",
			Message: "the pool has no space for another volume, snapshot or growth; existing volumes keep their reservations"})
	}
	return found, nil
}
