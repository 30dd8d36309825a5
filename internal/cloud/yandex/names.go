package yandex

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// names is what the cloud documents for disks and snapshots.
var names = cloud.NameRule{MinLen: 1, MaxLen: 63, Underscore: true, StartLetter: true, EndAlnum: true}

// devicePrefix begins the link that udev makes for a disk, and its device name follows. The device name is
// also what the disk says about itself.
var devicePrefix = profile.Yandex.LinkPrefix

var (
	// objectWord is what the ids of disks, snapshots, instances and folders look like: 20 letters and digits so
	// far, and the cloud takes 50.
	objectWord = regexp.MustCompile(`^[a-z0-9]{1,50}$`)
	zoneWord   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,49}$`)
	deviceWord = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,19}$`)
)

// objectID reports whether the cloud can have made this id. Others never become part of a request.
func objectID[T ~string](id T) bool { return objectWord.MatchString(string(id)) }

// cloudName is the cloud's name for a request name.
func (c *Cloud) cloudName(name string) string { return names.Map(c.prefix, name) }

// temporaryName is the name of the snapshot through which a clone goes. It belongs to the request, so a
// repeat finds it.
func (c *Cloud) temporaryName(request string) string {
	return names.Map(c.prefix, "clone-"+cloud.FullHash(request))
}

// deviceName is the name under which a disk is attached: its id, which is unique and fits. An id that does
// not fit would be the first of its kind; it gets the name that the vendor's driver makes, and so do all in the
// place of that driver, since its node program may still look for them.
func (c *Cloud) deviceName(disk cloud.VolumeID) string {
	if !c.vendorNames && deviceWord.MatchString(string(disk)) {
		return string(disk)
	}
	return profile.YandexVendorDevice(string(disk))
}

// deviceOf is how an instance recognises a disk that is attached under this name.
func deviceOf(name string) cloud.Device { return cloud.Device{Name: devicePrefix + name, Serial: name} }

// What is created under an idempotency key.
const (
	keyDisk      = "disk"
	keySnapshot  = "snapshot"
	keyTemporary = "temporary snapshot"
)

// keySpace is the name space of the idempotency keys.
var keySpace = uuid.NewSHA1(uuid.Nil, []byte("cloudblock-csi idempotency keys"))

// idempotencyKey is the key of a create. It follows from the folder, the cluster and the name of the request, and from nothing that
// a flag or a class can change. after is the operation that used the key before up (see create), or empty.
func (c *Cloud) idempotencyKey(kind, request, after string) string {
	return uuid.NewSHA1(keySpace, fmt.Appendf(nil, "%q", []string{c.folder, c.owner.Cluster, kind, request, after})).String()
}

// maxPrefix leaves room for a hash of 80 bits and something readable.
const maxPrefix = 32

// CheckPrefix refuses a prefix of names that the cloud would not take as it is.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	if len(prefix) > maxPrefix || names.Map(prefix, "a") != prefix+"a" {
		return fmt.Errorf("%q: names begin with a letter and have lower-case letters, digits, dashes and underscores; a prefix has at most %d: %w",
			prefix, maxPrefix, fault.InvalidArgument)
	}
	return nil
}

// CheckZone refuses what cannot be a zone. None is fine.
func CheckZone(zone string) error {
	if zone != "" && !zoneWord.MatchString(zone) {
		return fmt.Errorf("%q is not the name of a zone, such as ru-central1-a: %w", zone, fault.InvalidArgument)
	}
	return nil
}

// CheckFolder refuses what cannot be the id of a folder. None is fine.
func CheckFolder(id string) error {
	if id != "" && !objectID(id) {
		return fmt.Errorf("%q is not the id of a folder, which has lower-case letters and digits: %w", strings.ToValidUTF8(id, "?"), fault.InvalidArgument)
	}
	return nil
}

// The labels of this backend alone. Those that every cloud has are in package tags.
const (
	// labelTemporary marks the snapshot through which a clone goes.
	labelTemporary = tags.Own + "temporary"
	// labelParameters says which parameters the class gave; the disk itself has their values.
	labelParameters = tags.Own + "parameters"
)

// What the cloud documents for labels.
const (
	maxLabel  = 63
	maxLabels = 64
)

var (
	labelKey    = regexp.MustCompile(`^[a-z][-_./\\@0-9a-z]{0,62}$`)
	labelValue  = regexp.MustCompile(`^[-_./\\@0-9a-z]{0,63}$`)
	labelLetter = regexp.MustCompile(`^[-_./\\@0-9a-z]$`)
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

// labelOf returns the value of a tag as the cloud takes it. The names of Kubernetes' objects are taken as far
// as the cloud allows their letters and has room; anything else must fit as it is.
func labelOf(t cloud.Tag) (string, error) {
	value := t.Value
	if strings.HasPrefix(t.Key, tags.Own) && t.Key != tags.Cluster {
		value = labelSafe(value)
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

// labelSafe makes lower-case letters of capitals, puts '_' for what the cloud does not allow and cuts what is
// too long.
func labelSafe(value string) string {
	value = strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		if r < 0x80 && labelLetter.MatchString(string(r)) {
			return r
		}
		return '_'
	}, value)
	return value[:min(len(value), maxLabel)]
}

// ownerOf is the cluster with this id.
func ownerOf(cluster string) tags.Owner {
	return tags.Owner{Value: labelOf, Max: maxLabels, Cluster: cluster}
}

// labelLease is for how long labels that were read may be written back: a change by another client between is lost.
const labelLease = 2 * time.Second

// ModifyVolume puts labels on a disk. The API replaces all labels of a disk, so the request is sent right after a read.
func (c *Cloud) ModifyVolume(ctx context.Context, id cloud.VolumeID, list []cloud.Tag) error {
	if !objectID(id) {
		return fmt.Errorf("modify disk %.80q: %w: no disk has such an id", id, fault.NotFound)
	}
	wanted := map[string]string{}
	for _, t := range list {
		value, err := labelOf(t)
		if strings.HasPrefix(t.Key, tags.Own) {
			err = fmt.Errorf("label %q is the driver's own: %w", t.Key, fault.InvalidArgument)
		}
		if err != nil {
			return fmt.Errorf("modify disk %s: %w", id, err)
		}
		wanted[t.Key] = value
	}
	var labels map[string]string // of the last read, with those wanted
	_, err := ops.Run(ctx, c.ops, ops.Op[*compute.Disk]{
		Name: fmt.Sprintf("put labels %v on disk %s", wanted, id), Kind: "modify", Object: diskKey(id), Priority: budget.Write, Lease: labelLease,
		Submit: func(ctx context.Context, w *ops.Write) (*compute.Disk, string, error) {
			op, err := started(c.disks.Update(ctx, &compute.UpdateDiskRequest{
				DiskId: string(id), Labels: labels, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels"}},
			}, by(w)))
			return nil, op, err
		},
		State: func(ctx context.Context) (*compute.Disk, error) {
			d, err := c.findDisk(ctx, id, budget.Read)
			labels = withLabels(d, wanted)
			return d, err
		},
		Decide: func(d *compute.Disk, _ bool, refusal error) error { return decideModify(d, wanted, refusal) },
	})
	return err
}

// withLabels returns the labels of a disk after a change.
func withLabels(d *compute.Disk, wanted map[string]string) map[string]string {
	labels := maps.Clone(wanted)
	for key, value := range d.GetLabels() {
		if _, changed := wanted[key]; !changed {
			labels[key] = value
		}
	}
	return labels
}

// decideModify says what the state means for labels that are refused, or not sent yet.
func decideModify(d *compute.Disk, wanted map[string]string, refusal error) error {
	labels := withLabels(d, wanted)
	switch {
	case d == nil:
		return fmt.Errorf("%w: there is no such disk", fault.NotFound)
	case maps.Equal(labels, d.GetLabels()):
		return nil
	case len(labels) > maxLabels:
		return fmt.Errorf("the disk would have %d labels, the cloud takes %d: %w", len(labels), maxLabels, fault.InvalidArgument)
	case refusal == nil:
		return fault.Busy
	case fault.Of(refusal) == fault.InvalidArgument:
		return refusal
	default:
		return fmt.Errorf("%w: %w", fault.Busy, refusal)
	}
}
