package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// maxBlocks is the maximum number of ranges in one message, which then has some 20 KiB.
const maxBlocks = 1024

// Blocks implements csi.SnapshotMetadataServer.
type Blocks struct {
	csi.UnimplementedSnapshotMetadataServer

	cloud cloud.SnapshotBlocks
}

// NewBlocks returns a service over a cloud.
func NewBlocks(c cloud.SnapshotBlocks) *Blocks { return &Blocks{cloud: c} }

// GetMetadataAllocated streams the ranges of a snapshot that may have data.
func (b *Blocks) GetMetadataAllocated(req *csi.GetMetadataAllocatedRequest, stream csi.SnapshotMetadata_GetMetadataAllocatedServer) error {
	if err := checkSnapshot("snapshot_id", req.GetSnapshotId()); err != nil {
		return err
	}
	want := cloud.BlocksRequest{Target: cloud.SnapshotID(req.GetSnapshotId()), From: cloud.Bytes(req.GetStartingOffset())}
	return b.read(stream.Context(), want, req.GetMaxResults(), func(size cloud.Bytes, list []*csi.BlockMetadata) error {
		return stream.Send(&csi.GetMetadataAllocatedResponse{
			BlockMetadataType: csi.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: int64(size), BlockMetadata: list,
		})
	})
}

// GetMetadataDelta streams the ranges of a snapshot that may differ from another one.
func (b *Blocks) GetMetadataDelta(req *csi.GetMetadataDeltaRequest, stream csi.SnapshotMetadata_GetMetadataDeltaServer) error {
	if err := checkSnapshot("base_snapshot_id", req.GetBaseSnapshotId()); err != nil {
		return err
	}
	if err := checkSnapshot("target_snapshot_id", req.GetTargetSnapshotId()); err != nil {
		return err
	}
	want := cloud.BlocksRequest{
		Target: cloud.SnapshotID(req.GetTargetSnapshotId()), Base: cloud.SnapshotID(req.GetBaseSnapshotId()),
		From: cloud.Bytes(req.GetStartingOffset()),
	}
	return b.read(stream.Context(), want, req.GetMaxResults(), func(size cloud.Bytes, list []*csi.BlockMetadata) error {
		return stream.Send(&csi.GetMetadataDeltaResponse{
			BlockMetadataType: csi.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: int64(size), BlockMetadata: list,
		})
	})
}

// checkSnapshot refuses a missing id. One that no cloud has is an invalid id for the specification, which is NOT_FOUND.
func checkSnapshot(field, id string) error {
	err := driver.CheckSnapshotID(field, id)
	if err != nil && id != "" {
		return fmt.Errorf("%w: %w", fault.NotFound, err)
	}
	return err
}

// read sends the blocks in messages of at most so many ranges; 0: of maxBlocks.
func (b *Blocks) read(ctx context.Context, req cloud.BlocksRequest, most int32, send func(size cloud.Bytes, list []*csi.BlockMetadata) error) error {
	switch {
	case most < 0:
		return fmt.Errorf("max_results: %d is negative: %w", most, fault.InvalidArgument)
	case req.From < 0:
		return fmt.Errorf("starting_offset: %d is negative: %w", req.From, fault.OutOfRange)
	case most == 0 || most > maxBlocks:
		most = maxBlocks
	}
	message := func(size cloud.Bytes, list []*csi.BlockMetadata) error {
		err := send(size, list)
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("send blocks: %w: %w", fault.Unavailable, err)
		}
		return nil
	}
	return b.cloud.ReadBlocks(ctx, req, func(found cloud.BlockList) error {
		if len(found.Blocks) == 0 {
			return message(found.Size, nil)
		}
		for some := range slices.Chunk(found.Blocks, int(most)) {
			list := make([]*csi.BlockMetadata, 0, len(some))
			for _, r := range some {
				list = append(list, &csi.BlockMetadata{ByteOffset: int64(r.Offset), SizeBytes: int64(r.Length)})
			}
			if err := message(found.Size, list); err != nil {
				return err
			}
		}
		return nil
	})
}
