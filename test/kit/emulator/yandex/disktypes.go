package yandex

import (
	"context"
	"maps"
	"slices"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rpc"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40
)

// diskType has the sizes of a type: steps of so many bytes, which also is the least.
type diskType struct {
	description string
	step        int64
	// network disks can be the larger, the larger their blocks are.
	network bool
}

const (
	usualType      = "network-hdd"
	smallestDisk   = 4 * mib
	largestDisk    = 26 * tib
	largestUpdate  = 4 * tib
	usualBlock     = 4 * kib
	largestBlock   = 128 * kib
	blocksPerDisk  = 8 * tib / (4 * kib)
	replicatedStep = 93 * gib
)

var diskTypes = map[string]diskType{
	"network-hdd":               {"Network storage with HDD backend", smallestDisk, true},
	"network-ssd":               {"Network storage with SSD backend", smallestDisk, true},
	"network-ssd-nonreplicated": {"Non-replicated network storage with SSD backend", replicatedStep, false},
	"network-ssd-io-m3":         {"Fast network storage with three replicas", replicatedStep, false},
}

// checkSize checks a disk's size, which can be at most as large as limit says.
func checkSize(typeID string, size, blockSize, limit int64) *refusal {
	kind, known := diskTypes[typeID]
	switch {
	case !known:
		return nil // checkPlace refuses it
	case size < smallestDisk || size > limit:
		return bad("size", "Value must be between %d and %d", int64(smallestDisk), limit)
	case size%kind.step != 0:
		return bad("size", "Disk size must be a multiple of %d for %s", kind.step, typeID)
	case kind.network && size > blockSize*blocksPerDisk:
		return bad("size", "Disk with block size %d can have at most %d bytes", blockSize, blockSize*blocksPerDisk)
	}
	return nil
}

func checkBlockSize(size int64) *refusal {
	if size < usualBlock || size > largestBlock || size&(size-1) != 0 {
		return bad("block_size", "Value must be a power of two between %d and %d", usualBlock, largestBlock)
	}
	return nil
}

// checkPlace checks that there can be a disk of a type in a zone.
func (c *Cloud) checkPlace(zone, typeID string) *refusal {
	if why := checkID("zone_id", zone); why != nil {
		return why
	}
	place, known := c.opts.Zones[zone]
	_, knownType := diskTypes[typeID]
	switch {
	case !known:
		return bad("zone_id", "Unknown zone %s", zone)
	case !knownType:
		return bad("type_id", "Unknown disk type %s", typeID)
	case place.DiskTypes != nil && !slices.Contains(place.DiskTypes, typeID):
		return bad("type_id", "Disk type %s is not available in zone %s", typeID, zone)
	}
	return nil
}

type diskTypeService struct {
	compute.UnimplementedDiskTypeServiceServer
	c *Cloud
}

// Get shows a disk type.
func (s diskTypeService) Get(_ context.Context, ask *compute.GetDiskTypeRequest) (*compute.DiskType, error) {
	if _, known := diskTypes[ask.GetDiskTypeId()]; !known {
		return nil, s.c.refuse(notFound.with("Disk type", ask.GetDiskTypeId()))
	}
	return s.c.showDiskType(ask.GetDiskTypeId()), nil
}

func (c *Cloud) showDiskType(id string) *compute.DiskType {
	shown := &compute.DiskType{Id: id, Description: diskTypes[id].description}
	for _, zone := range slices.Sorted(maps.Keys(c.opts.Zones)) {
		if types := c.opts.Zones[zone].DiskTypes; types == nil || slices.Contains(types, id) {
			shown.ZoneIds = append(shown.ZoneIds, zone)
		}
	}
	return shown
}

// effectOf returns what a fault wants of a call.
func effectOf(ctx context.Context) effect { return rpc.From(ctx).Effect }
