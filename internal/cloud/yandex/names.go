package yandex

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
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
