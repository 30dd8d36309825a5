package yandex

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"
	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// names are the cloud's documented rules for names of disks and snapshots.
var names = cloud.NameRule{MinLen: 1, MaxLen: 63, Underscore: true, StartLetter: true, EndAlnum: true}

// devicePrefix is the prefix of the link that udev makes for a disk; the disk's device name follows. The disk reports the device name
// as its serial.
var devicePrefix = profile.Yandex.LinkPrefix

var (
	// objectWord matches the ids of disks, snapshots, instances and folders: 20 letters and digits so far; the API accepts 50.
	objectWord = regexp.MustCompile(`^[a-z0-9]{1,50}$`)
	zoneWord   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,49}$`)
	deviceWord = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,19}$`)
)

// objectID reports whether this can be an id of the cloud. Others are never sent.
func objectID[T ~string](id T) bool { return objectWord.MatchString(string(id)) }

// cloudName returns the object's name in the cloud for the name of a request.
func (c *Cloud) cloudName(name string) string { return names.Map(c.prefix, name) }

// temporaryName returns the name of the temporary snapshot of a clone. It depends on the request only, so a repeat finds the snapshot.
func (c *Cloud) temporaryName(request string) string {
	return names.Map(c.prefix, "clone-"+cloud.FullHash(request))
}

// deviceName returns the device name with which a disk is attached: its id, which is unique and, so far, short enough. A longer id gets
// the name that the vendor's driver would use. With VendorNames all disks do, because the vendor's node program may still look for
// them.
func (c *Cloud) deviceName(disk cloud.VolumeID) string {
	if !c.vendorNames && deviceWord.MatchString(string(disk)) {
		return string(disk)
	}
	return profile.YandexVendorDevice(string(disk))
}

// deviceOf returns how an instance identifies a disk that is attached with this device name.
func deviceOf(name string) cloud.Device { return cloud.Device{Name: devicePrefix + name, Serial: name} }

// The kinds of objects that are created with an idempotency key.
const (
	keyDisk      = "disk"
	keySnapshot  = "snapshot"
	keyTemporary = "temporary snapshot"
)

// keySpace is the name space of the idempotency keys.
var keySpace = uuid.NewSHA1(uuid.Nil, []byte("cloudblock-csi idempotency keys"))

// idempotencyKey returns the key of a create. It depends on the folder, the cluster and the name of the request only, and not on flags
// or classes. after is the operation of the previous key (see create), or empty.
func (c *Cloud) idempotencyKey(kind, request, after string) string {
	return uuid.NewSHA1(keySpace, fmt.Appendf(nil, "%q", []string{c.folder, c.owner.Cluster, kind, request, after})).String()
}

// CheckPrefix refuses a prefix of names that the cloud would refuse.
func CheckPrefix(prefix string) error {
	return names.CheckPrefix(prefix, "names begin with a letter and have lower-case letters, digits, dashes and underscores")
}

// CheckZone refuses what cannot be a zone; "" is allowed.
func CheckZone(zone string) error {
	if zone != "" && !zoneWord.MatchString(zone) {
		return fmt.Errorf("%q is not the name of a zone, such as ru-central1-a: %w", zone, fault.InvalidArgument)
	}
	return nil
}

// CheckFolder refuses what cannot be the id of a folder; "" is allowed.
func CheckFolder(id string) error {
	if id != "" && !objectID(id) {
		return fmt.Errorf("%q is not the id of a folder, which has lower-case letters and digits: %w", strings.ToValidUTF8(id, "?"), fault.InvalidArgument)
	}
	return nil
}

// The labels of this backend. Those of all clouds are in package tags.
const (
	// labelTemporary marks the temporary snapshot of a clone.
	labelTemporary = tags.Own + "temporary"
	// labelParameters lists the parameters that the class set; the disk itself has their values.
	labelParameters = tags.Own + "parameters"
)

// The cloud's documented limits of labels.
const (
	maxLabel  = 63
	maxLabels = 64
)

var (
	labelKey   = regexp.MustCompile(`^[a-z][-_./\\@0-9a-z]{0,62}$`)
	labelValue = regexp.MustCompile(`^[-_./\\@0-9a-z]{0,63}$`)
)

// CheckTags refuses tags that the cloud would refuse as labels.
func CheckTags(tags []cloud.Tag) error {
	for _, t := range tags {
		if _, err := labelOf(t); err != nil {
			return err
		}
	}
	return nil
}

// labelOf returns the value of a tag as a label. Names of Kubernetes objects are made to fit the cloud's characters and length;
// anything else must fit as it is.
func labelOf(t cloud.Tag) (string, error) {
	value := t.Value
	if strings.HasPrefix(t.Key, tags.Own) && t.Key != tags.Cluster {
		value = tags.Safe(strings.ToLower(value), labelValue, maxLabel)
	}
	switch {
	case !labelKey.MatchString(t.Key):
		return "", fmt.Errorf("label %q: the cloud wants a key of at most %d characters: a lower-case letter, then lower-case letters, digits and -_./\\@: %w",
			t.Key, maxLabel, fault.InvalidArgument)
	case !labelValue.MatchString(value):
		return "", fmt.Errorf("label %q: the cloud wants a value of at most %d lower-case letters, digits and -_./\\@: %w",
			t.Key, maxLabel, fault.InvalidArgument)
	}
	return value, nil
}

// ownerOf returns the cluster with this id.
func ownerOf(cluster string) tags.Owner {
	return tags.Owner{Value: labelOf, Max: maxLabels, Cluster: cluster}
}

// ModifyVolume puts labels on a disk.
func (c *Cloud) ModifyVolume(ctx context.Context, id cloud.VolumeID, list []cloud.Tag) error {
	wanted, err := c.owner.Given(list)
	if err != nil {
		return fmt.Errorf("modify disk %.80q: %w", id, err)
	}
	return c.Modify(ctx, block.Modification{
		ID: id, Tags: wanted, Max: maxLabels,
		Merge: func(has []cloud.Tag) []cloud.Tag { return tags.Merge(has, wanted) },
		Send: func(ctx context.Context, w *ops.Write, all []cloud.Tag) (string, error) {
			return started(c.disks.Update(ctx, &compute.UpdateDiskRequest{
				DiskId: string(id), Labels: tags.Labels(all), UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels"}},
			}, by(w)))
		},
	})
}
