package driver

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The keys of the volume and publish contexts, without their prefix "<driver name>/".
const (
	keyDeviceName     = "device-name"
	keySerial         = "serial"
	keySize           = "size"
	keyContent        = "content"
	keyMkfsOptions    = "mkfs-options"
	keyFormatNonZero  = "format-non-zero"
	keyLUKS           = "luks"
	keyReadIOPS       = "read-iops"
	keyWriteIOPS      = "write-iops"
	keyReadBandwidth  = "read-bandwidth"
	keyWriteBandwidth = "write-bandwidth"
)

// SecretLUKS is the key of the passphrase in the secrets of a request. Vendors use the same key.
const SecretLUKS = "luksKey"

// The contents of a volume at its creation.
const (
	// ContentUnknown is the content of a volume that this driver did not create.
	ContentUnknown = ""
	// ContentBlank is the content of a volume that this driver created without a source.
	ContentBlank = "blank"
	// ContentCopy is the content of a volume made from a snapshot or another volume.
	ContentCopy = "copy"
)

// VolumeContext is the information about a volume that every node gets from the controller. It never changes.
type VolumeContext struct {
	// DeviceName is the base name of the device's link, or of the pool's file; empty: unknown.
	DeviceName string
	// Serial is the serial number that the disk reports; empty: unknown.
	Serial string
	// Size is the size at creation, a lower bound; 0: unknown.
	Size int64
	// Content is ContentBlank, ContentCopy or ContentUnknown.
	Content string
	// MkfsOptions are the class's extra arguments of mkfs.
	MkfsOptions []string
	// FormatNonZero: the class allows to make a filesystem on a disk that does not read as zeros.
	FormatNonZero bool
	// LUKS: the node encrypts the volume. VendorLUKS: only a vendor's attribute says that.
	LUKS, VendorLUKS bool
	// Limits are the limits of I/O that each pod with the volume has.
	Limits IOLimits
	// NeverFormat is the vendor's attribute that forbids to make a filesystem on the volume; empty: there is none.
	NeverFormat string
	// Refused is why a node must not use the volume, which a vendor's driver has created in a form that this driver does not
	// support; empty: it may.
	Refused string
}

// IOLimits are what the processes of one pod together may read from and write to a volume. 0: no limit.
type IOLimits struct {
	// ReadIOPS and WriteIOPS are operations a second.
	ReadIOPS, WriteIOPS int64
	// ReadBandwidth and WriteBandwidth are bytes a second.
	ReadBandwidth, WriteBandwidth int64
}

// The bounds of limits.
const (
	// MinIOPS: the creation of one file takes several operations, so with fewer a pod appears to hang.
	MinIOPS = 10
	// MaxIOPS is the maximum that the kernel stores, in whole steps; it would cut a larger number.
	MaxIOPS = math.MaxUint32 / StepIOPS * StepIOPS
	// StepIOPS: the kernel (throtl_slice in block/blk-throttle.c) counts operations in slices of 1/10 s, and rounds what one slice has down.
	StepIOPS = 10
	// MinBandwidth: the kernel writes back in operations of about 1 MiB, each of which would take longer than a second.
	MinBandwidth = 1 << 20
)

// limit is one of the limits, with its key, its bounds and what it is a multiple of.
type limit struct {
	key            string
	to             *int64
	min, max, step int64
}

func (l *IOLimits) all() []limit {
	return []limit{
		{keyReadIOPS, &l.ReadIOPS, MinIOPS, MaxIOPS, StepIOPS},
		{keyWriteIOPS, &l.WriteIOPS, MinIOPS, MaxIOPS, StepIOPS},
		{keyReadBandwidth, &l.ReadBandwidth, MinBandwidth, math.MaxInt64, 1},
		{keyWriteBandwidth, &l.WriteBandwidth, MinBandwidth, math.MaxInt64, 1},
	}
}

// PublishContext is the information about the device that a node gets from an attach. Empty fields are unknown.
type PublishContext struct {
	DeviceName, Serial string
	Size               int64
}

// With returns the volume context with the known fields of a publish context, which are newer, instead of its own.
func (v VolumeContext) With(p PublishContext) VolumeContext {
	if p.DeviceName != "" {
		v.DeviceName = p.DeviceName
	}
	if p.Serial != "" {
		v.Serial = p.Serial
	}
	if p.Size != 0 {
		v.Size = p.Size
	}
	return v
}

// EncodeVolumeContext returns a volume context in CSI's form. It omits unknown fields. It also omits VendorLUKS, NeverFormat and
// Refused, which come from a vendor's attributes.
func (n Names) EncodeVolumeContext(v VolumeContext) map[string]string {
	m := n.encodeDevice(PublishContext{DeviceName: v.DeviceName, Serial: v.Serial, Size: v.Size})
	if v.Content != ContentUnknown {
		m[n.key(keyContent)] = v.Content
	}
	if len(v.MkfsOptions) > 0 {
		m[n.key(keyMkfsOptions)] = strings.Join(v.MkfsOptions, " ")
	}
	if v.FormatNonZero {
		m[n.key(keyFormatNonZero)] = "true"
	}
	if v.LUKS {
		m[n.key(keyLUKS)] = "true"
		// The vendor's node program, which may still run on some nodes, must not treat the volume as unencrypted.
		maps.Copy(m, n.Vendor.LUKSAttributes())
	}
	for _, l := range v.Limits.all() {
		if *l.to != 0 {
			m[n.key(l.key)] = strconv.FormatInt(*l.to, 10)
		}
	}
	return m
}

// DecodeVolumeContext parses a volume context. It ignores unknown keys, because the kubelet and the authors of static
// PersistentVolumes add their own; a bad value of a known key is fault.InvalidArgument. No error contains a value.
func (n Names) DecodeVolumeContext(m map[string]string) (VolumeContext, error) {
	const field = "volume_context"
	device, err := n.decodeDevice(field, m)
	if err != nil {
		return VolumeContext{}, err
	}
	v := VolumeContext{
		DeviceName: device.DeviceName, Serial: device.Serial, Size: device.Size,
		NeverFormat: n.Vendor.Forbids(m), Refused: n.Vendor.Refuses(m),
	}
	v.Content = m[n.key(keyContent)]
	if v.Content != ContentUnknown && v.Content != ContentBlank && v.Content != ContentCopy {
		return VolumeContext{}, n.badKey(field, keyContent, "neither %s nor %s", ContentBlank, ContentCopy)
	}
	if v.MkfsOptions, err = ParseMkfsOptions(m[n.key(keyMkfsOptions)]); err != nil {
		return VolumeContext{}, fmt.Errorf("%s: %s: %w", field, n.key(keyMkfsOptions), err)
	}
	for key, to := range map[string]*bool{keyFormatNonZero: &v.FormatNonZero, keyLUKS: &v.LUKS} {
		switch m[n.key(key)] {
		case "true":
			*to = true
		case "", "false":
		default:
			return VolumeContext{}, n.badKey(field, key, "neither true nor false")
		}
	}
	v.VendorLUKS = !v.LUKS && n.Vendor.LUKS(m)
	v.LUKS = v.LUKS || v.VendorLUKS
	for _, l := range v.Limits.all() {
		text, given := m[n.key(l.key)]
		if !given {
			continue
		}
		value, ok := parseSize(text)
		if !ok || value < l.min || value > l.max || value%l.step != 0 {
			return VolumeContext{}, n.badKey(field, l.key, "not a multiple of %d from %d to %d", l.step, l.min, l.max)
		}
		*l.to = value
	}
	return v, nil
}

// EncodePublishContext returns a publish context in CSI's form. With the name of a vendor's driver, the vendor's node program can
// read it too, which still runs on some nodes while a cluster migrates.
func (n Names) EncodePublishContext(p PublishContext) map[string]string {
	m := n.encodeDevice(p)
	maps.Copy(m, n.Vendor.Tell(p.DeviceName))
	return m
}

func (n Names) encodeDevice(p PublishContext) map[string]string {
	m := make(map[string]string, 6)
	if p.DeviceName != "" {
		m[n.key(keyDeviceName)] = p.DeviceName
	}
	if p.Serial != "" {
		m[n.key(keySerial)] = p.Serial
	}
	if p.Size != 0 {
		m[n.key(keySize)] = strconv.FormatInt(p.Size, 10)
	}
	return m
}

// DecodePublishContext parses the publish context of a volume, under the rules of DecodeVolumeContext. With the name of a vendor's
// driver, the context may be from the vendor's controller, because an attachment keeps its context as long as it exists.
func (n Names) DecodePublishContext(volume string, m map[string]string) (PublishContext, error) {
	const field = "publish_context"
	p, err := n.decodeDevice(field, m)
	if err != nil || p.DeviceName != "" {
		return p, err
	}
	if p.DeviceName = n.Vendor.Link(volume, m); !plainName(p.DeviceName) {
		return PublishContext{}, fmt.Errorf("%s: what the driver before this one wrote names no disk: %w", field, fault.InvalidArgument)
	}
	return p, nil
}

func (n Names) decodeDevice(field string, m map[string]string) (PublishContext, error) {
	if err := CheckMap(field, m); err != nil {
		return PublishContext{}, err
	}
	p := PublishContext{DeviceName: m[n.key(keyDeviceName)], Serial: m[n.key(keySerial)]}
	if !plainName(p.DeviceName) {
		return PublishContext{}, n.badKey(field, keyDeviceName, "not a plain file name")
	}
	if !plainName(p.Serial) {
		return PublishContext{}, n.badKey(field, keySerial, "not a plain serial number")
	}
	size, given := m[n.key(keySize)]
	if !given {
		return p, nil
	}
	var ok bool
	if p.Size, ok = parseSize(size); !ok {
		return PublishContext{}, n.badKey(field, keySize, "not a positive number of bytes")
	}
	return p, nil
}

func (n Names) key(name string) string { return n.Driver + "/" + name }

func (n Names) badKey(field, key, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %s: %w", field, n.key(key), fmt.Sprintf(format, args...), fault.InvalidArgument)
}

// plainName reports whether a string can be a device name or a serial number. It is joined to a folder and compared with what the
// kernel prints, so it has no separator, is not "." or "..", and is printable.
func plainName(s string) bool {
	if len(s) > stringLimit || s == "." || s == ".." {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r == '/' || r <= ' ' || r > '~' })
}

// parseSize accepts digits only: no sign, no unit, no leading zero, at most the maximum int64.
func parseSize(s string) (int64, bool) {
	size, err := strconv.ParseInt(s, 10, 64)
	return size, err == nil && size > 0 && strconv.FormatInt(size, 10) == s
}
