package yandex

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The cloud's documented sizes.
const (
	minDisk = 4 * cloud.MiB
	maxDisk = 26 * cloud.TiB
	// defaultDisk is the size for a request without one, as in the vendor's driver.
	defaultDisk = 5 * cloud.GiB
	// usualStep is the step of the sizes of most types, wideStep that of the types in wide.
	usualStep = 4 * cloud.MiB
	wideStep  = 93 * cloud.GiB
	// usualBlock is the default block size; the maximum size of a disk is proportional to the block size.
	usualBlock      = 4 * cloud.KiB
	maxBlock        = 128 * cloud.KiB
	maxInUsualBlock = 8 * cloud.TiB
)

// wide are the types whose disks are made of whole drives. An unknown type counts as a usual one; the cloud refuses a size that does not
// fit.
var wide = []string{"network-ssd-nonreplicated", "network-ssd-io-m3"}

// stepOf returns the step of the sizes of a type.
func stepOf(diskType string) cloud.Bytes {
	if slices.Contains(wide, diskType) {
		return wideStep
	}
	return usualStep
}

// largestOf returns the maximum size of a disk with this type and block size. The block size never changes.
func largestOf(diskType string, block cloud.Bytes) cloud.Bytes {
	if slices.Contains(wide, diskType) {
		return maxDisk / wideStep * wideStep
	}
	return min(maxInUsualBlock/usualBlock*max(block, usualBlock), maxDisk)
}

// fitted rounds a size up to the step of a type. A limit of 0 means none.
func fitted(size, limit cloud.Bytes, diskType string, block cloud.Bytes) (cloud.Bytes, error) {
	step, largest := stepOf(diskType), largestOf(diskType, block)
	rounded := (max(size, minDisk) + step - 1) / step * step
	switch {
	case size > maxDisk:
		return 0, fmt.Errorf("%s is more than %s, the largest disk: %w", size, maxDisk, fault.OutOfRange)
	case size > largest:
		return 0, fmt.Errorf("%s is more than %s, the largest disk with blocks of %s (the block size of a disk is chosen when it is made, with the parameter %s): %w",
			size, largest, max(block, usualBlock), paramBlockSize, fault.OutOfRange)
	case limit > 0 && rounded > limit:
		return 0, fmt.Errorf("the smallest size that fits is %s, because disks of the type %s have multiples of %s; the limit is %s: %w",
			rounded, diskType, step, limit, fault.OutOfRange)
	}
	return rounded, nil
}

// The parameters of a StorageClass.
const (
	paramBlockSize = "blockSize"
	paramEncrypted = "encrypted"
	paramGroup     = "placementGroupId"
	paramKMSKey    = "kmsKeyId"
	paramType      = "type"
)

// parameters are the decoded parameters of a class.
type parameters struct {
	diskType string
	block    cloud.Bytes // 0: the cloud's own
	kmsKey   string
	group    string // the placement group; "": none
	// asked lists which parameters the class set, for a label: a disk has a type and a block size in any case.
	asked string
}

// usualType is the cloud's default type.
const usualType = "network-hdd"

var (
	typeWord  = regexp.MustCompile(`^[a-z][a-z0-9-]{0,49}$`)
	blockWord = regexp.MustCompile(`^[1-9][0-9]{0,5}(Ki)?$`)
)

// parse decodes the parameters of a request, which are sorted by name.
func parse(list []cloud.Parameter) (p parameters, err error) {
	p.diskType = usualType
	encrypted, grouped := "", false
	var asked []string
	for _, given := range list {
		mark := strings.ToLower(given.Name)
		switch given.Name {
		case paramType:
			p.diskType = given.Value
		case paramKMSKey:
			p.kmsKey = given.Value
		case paramBlockSize:
			p.block = blockOf(given.Value)
			mark += "." + strings.ToLower(given.Value)
		case paramEncrypted:
			encrypted = given.Value
			mark += "." + given.Value
		case paramGroup:
			p.group, grouped = given.Value, true
			continue
		default:
			return p, fmt.Errorf("unknown parameter %q: %w", given.Name, fault.InvalidArgument)
		}
		asked = append(asked, mark)
	}
	p.asked = strings.Join(asked, "/")
	switch {
	case !typeWord.MatchString(p.diskType):
		err = fmt.Errorf("parameter %s: %.40q is not the name of a disk type, such as network-ssd", paramType, p.diskType)
	case p.kmsKey != "" && !objectID(p.kmsKey):
		err = fmt.Errorf("parameter %s: %.40q is not the id of a key", paramKMSKey, p.kmsKey)
	case p.block < 0:
		err = fmt.Errorf("parameter %s: the cloud has blocks of 4Ki, 8Ki, 16Ki, 32Ki, 64Ki and 128Ki", paramBlockSize)
	case encrypted != "" && encrypted != "true" && encrypted != "false":
		err = fmt.Errorf("parameter %s: neither true nor false", paramEncrypted)
	case encrypted == "true" && p.kmsKey == "":
		err = fmt.Errorf("parameter %s: this cloud encrypts with a key of yours; name it with %s", paramEncrypted, paramKMSKey)
	case encrypted == "false" && p.kmsKey != "":
		err = fmt.Errorf("parameter %s: false, and yet there is a %s", paramEncrypted, paramKMSKey)
	case grouped && !objectID(p.group):
		err = fmt.Errorf("parameter %s: %.40q is not the id of a placement group of disks", paramGroup, p.group)
	case grouped && stepOf(p.diskType) != wideStep:
		err = fmt.Errorf("parameter %s: disks of the type %s have no placement groups; those of network-ssd-nonreplicated have", paramGroup, p.diskType)
	}
	if err != nil {
		return p, fmt.Errorf("%w: %w", fault.InvalidArgument, err)
	}
	return p, nil
}

// placement returns the placement policy of a create, or nil.
func (p *parameters) placement() *compute.DiskPlacementPolicy {
	if p.group == "" {
		return nil
	}
	return &compute.DiskPlacementPolicy{PlacementGroupId: p.group}
}

// blockOf parses a block size, in bytes or as 64Ki; -1 if it is invalid.
func blockOf(text string) cloud.Bytes {
	if !blockWord.MatchString(text) {
		return -1
	}
	digits, kibi := strings.CutSuffix(text, "Ki")
	n, err := strconv.ParseInt(digits, 10, 64)
	size := cloud.Bytes(n)
	if kibi {
		size *= cloud.KiB
	}
	for possible := usualBlock; possible <= maxBlock; possible *= 2 {
		if size == possible && err == nil {
			return size
		}
	}
	return -1
}

// parametersOf returns the parameters with which a disk was created, sorted by name. It reads the values from the disk's fields, or else
// from its labels.
func parametersOf(d *compute.Disk) (list []cloud.Parameter) {
	add := func(name, value string) { list = append(list, cloud.Parameter{Name: name, Value: value}) }
	for mark := range strings.SplitSeq(d.GetLabels()[labelParameters], "/") {
		name, value, _ := strings.Cut(mark, ".")
		switch name {
		case strings.ToLower(paramBlockSize):
			add(paramBlockSize, strings.Replace(value, "ki", "Ki", 1))
		case paramEncrypted:
			add(paramEncrypted, value)
		case strings.ToLower(paramKMSKey):
			add(paramKMSKey, d.GetKmsKey().GetKeyId())
		case paramType:
			add(paramType, d.GetTypeId())
		}
	}
	if group := d.GetDiskPlacementPolicy().GetPlacementGroupId(); group != "" { // a disk has none but by the class
		add(paramGroup, group)
	}
	slices.SortFunc(list, func(a, b cloud.Parameter) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// idOf returns the id of a disk.
func idOf(d *compute.Disk) cloud.VolumeID { return cloud.VolumeID(d.GetId()) }

// sizeOf returns the size of a disk.
func sizeOf(d *compute.Disk) cloud.Bytes { return cloud.Bytes(d.GetSize()) }

// ownStep returns the step of a disk's size for cloud.Volume: 0 for the usual one.
func ownStep(d *compute.Disk) cloud.Bytes {
	if step := stepOf(d.GetTypeId()); step != usualStep {
		return step
	}
	return 0
}

// volumeOf returns a disk as a cloud.Volume.
func (c *Cloud) volumeOf(d *compute.Disk) cloud.Volume {
	vol := cloud.Volume{
		ID:         idOf(d),
		Name:       d.GetName(),
		Size:       sizeOf(d),
		SizeStep:   ownStep(d),
		Zone:       d.GetZoneId(),
		Source:     sourceOf(d),
		Parameters: parametersOf(d),
		Device:     deviceOf(c.deviceName(idOf(d))),
		Tags:       tags.ReadLabels(d.GetLabels()),
		Health:     healthOf(d),
		Mark:       tags.MarkOfLabels(d.GetLabels()),
	}
	if d.GetCreatedAt() != nil {
		vol.Created = d.GetCreatedAt().AsTime()
	}
	for _, id := range d.GetInstanceIds() {
		vol.AttachedTo = append(vol.AttachedTo, cloud.NodeID(id))
	}
	slices.Sort(vol.AttachedTo)
	return vol
}

// healthOf returns what is wrong with a disk. The API documents the state ERROR as a problem with which the disk "cannot operate".
func healthOf(d *compute.Disk) cloud.Health {
	if d.GetStatus() != compute.Disk_ERROR {
		return cloud.Health{}
	}
	return cloud.Health{
		Kind: cloud.Inaccessible, Reason: "DiskError",
		Message: fmt.Sprintf("disk %s is in the state ERROR and cannot operate; ask the cloud's support, or restore a snapshot", d.GetId()),
	}
}

// sourceOf returns the source of a disk. That of a clone is the requested disk and not the temporary snapshot.
func sourceOf(d *compute.Disk) cloud.Source {
	if id := d.GetLabels()[tags.FromVolume]; id != "" {
		return cloud.Source{Volume: cloud.VolumeID(id)}
	}
	return cloud.Source{Snapshot: cloud.SnapshotID(cmp.Or(d.GetLabels()[tags.FromSnapshot], d.GetSourceSnapshotId()))}
}

// oldestFirst orders disks by their creation, equally in all controllers.
func oldestFirst(a, b *compute.Disk) int {
	if order := a.GetCreatedAt().AsTime().Compare(b.GetCreatedAt().AsTime()); order != 0 {
		return order
	}
	return strings.Compare(a.GetId(), b.GetId())
}

// snapshotOf returns a snapshot as a cloud.Snapshot. It has no zone, because it can be restored in all.
func snapshotOf(s *compute.Snapshot) cloud.Snapshot {
	mark := tags.MarkOfLabels(s.GetLabels())
	mark.Temporary = mark.Driver && s.GetLabels()[labelTemporary] != ""
	return cloud.Snapshot{
		ID:      cloud.SnapshotID(s.GetId()),
		Name:    s.GetName(),
		Volume:  cloud.VolumeID(s.GetSourceDiskId()),
		Size:    cloud.Bytes(s.GetDiskSize()),
		Created: s.GetCreatedAt().AsTime(),
		Ready:   s.GetStatus() == compute.Snapshot_READY,
		Mark:    mark,
	}
}
