package controller

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// The StorageClass parameters that all clouds share. A cloud has additional ones in Capabilities.Parameters.
const (
	paramMkfsOptions   = "mkfsOptions"
	paramFormatNonZero = "formatNonZero"
	paramLUKS          = "luks"
	paramTags          = "tags"
	paramFilesystem    = "csi.storage.k8s.io/fstype"
)

// limitParameters are the parameters of limits of I/O. Each line has one for both directions, and those for one of them.
var limitParameters = []struct {
	both, read, write string
	parse             func(string) (int64, error)
	set               func(l *driver.IOLimits) (read, write *int64)
}{
	{"iops", "readIops", "writeIops", parseIOPS, func(l *driver.IOLimits) (read, write *int64) { return &l.ReadIOPS, &l.WriteIOPS }},
	{
		"bandwidth", "readBandwidth", "writeBandwidth", parseBandwidth,
		func(l *driver.IOLimits) (read, write *int64) { return &l.ReadBandwidth, &l.WriteBandwidth },
	},
}

// limitNames returns the names in limitParameters.
func limitNames() []string {
	var names []string
	for _, p := range limitParameters {
		names = append(names, p.both, p.read, p.write)
	}
	return names
}

// The parameters with which the sidecars' option extra-create-metadata names Kubernetes objects, and the tags for them.
var (
	volumeMetadata = map[string]string{
		"csi.storage.k8s.io/pvc/name":      "cloudblock-pvc",
		"csi.storage.k8s.io/pvc/namespace": "cloudblock-pvc-namespace",
		"csi.storage.k8s.io/pv/name":       "cloudblock-pv",
	}
	snapshotMetadata = map[string]string{
		"csi.storage.k8s.io/volumesnapshot/name":        "cloudblock-snapshot",
		"csi.storage.k8s.io/volumesnapshot/namespace":   "cloudblock-snapshot-namespace",
		"csi.storage.k8s.io/volumesnapshotcontent/name": "cloudblock-snapshot-content",
	}
)

// shownName is the maximum length of an unknown parameter's name in a message.
const shownName = 64

// volumeParameters are the decoded parameters of a StorageClass.
type volumeParameters struct {
	mkfsOptions   []string
	formatNonZero bool
	luks          bool
	filesystem    string
	limits        driver.IOLimits
	tags          []cloud.Tag
	// backend has the parameters of the cloud, sorted by name.
	backend []cloud.Parameter
}

// parseVolumeParameters decodes the parameters of a class. It refuses unknown ones, because it would be noticed too late that a
// setting is ignored. No error contains a value.
func (s *Service) parseVolumeParameters(raw map[string]string) (volumeParameters, error) {
	if err := driver.CheckMap("parameters", raw); err != nil {
		return volumeParameters{}, err
	}
	vendor := s.names.Vendor
	if why := vendor.Refuses(raw); why != "" {
		return volumeParameters{}, fmt.Errorf("parameters: %s: %w", why, fault.InvalidArgument)
	}
	known := slices.Concat([]string{paramMkfsOptions, paramFormatNonZero, paramLUKS, paramTags, paramFilesystem}, limitNames(),
		slices.Collect(maps.Keys(volumeMetadata)), s.caps.Parameters, vendor.ParameterNames())
	var p volumeParameters
	var err error
	if p.limits, err = parseLimits("parameters", raw); err != nil {
		return volumeParameters{}, err
	}
	given := make(map[string]string, len(raw))
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if !slices.Contains(known, name) {
			return volumeParameters{}, unknownParameter("parameters", name, known)
		}
		meant := vendor.Parameter(name)
		if meant == "" || slices.Contains(limitNames(), meant) {
			continue
		}
		if other, twice := given[meant]; twice {
			return volumeParameters{}, fmt.Errorf("parameters: %s and %s mean the same, give one: %w", other, name, fault.InvalidArgument)
		}
		given[meant] = name
		if err := p.set(meant, raw[name]); err != nil {
			return volumeParameters{}, fmt.Errorf("parameters: %s: %w", name, err)
		}
	}
	for _, d := range s.caps.Defaults {
		if !slices.ContainsFunc(p.backend, func(b cloud.Parameter) bool { return b.Name == d.Name }) {
			p.backend = append(p.backend, d)
		}
	}
	// A vendor's names are in another order than the names that they stand for.
	slices.SortFunc(p.backend, func(a, b cloud.Parameter) int { return strings.Compare(a.Name, b.Name) })
	return p, nil
}

// set stores a known parameter. It passes parameters of the cloud to the backend.
func (p *volumeParameters) set(name, value string) error {
	var err error
	switch name {
	case paramMkfsOptions:
		p.mkfsOptions, err = driver.ParseMkfsOptions(value)
	case paramFormatNonZero:
		p.formatNonZero, err = parseBool(value)
	case paramLUKS:
		p.luks, err = parseBool(value)
	case profile.FixedLUKSCipher:
		err = onlyValue(value, profile.LUKSCipher)
	case profile.FixedLUKSKeySize:
		err = onlyValue(value, profile.LUKSKeySize)
	case paramFilesystem:
		p.filesystem, err = value, driver.CheckFilesystem(value)
	case paramTags:
		var tags []cloud.Tag
		tags, err = ParseTags(strings.Split(value, ","))
		p.tags = append(p.tags, tags...)
	case profile.TagWords:
		var tags []cloud.Tag
		tags, err = parseTagWords(value)
		p.tags = append(p.tags, tags...)
	default:
		if tag, ok := volumeMetadata[name]; ok {
			p.tags = append(p.tags, cloud.Tag{Key: tag, Value: value})
			return nil
		}
		p.backend = append(p.backend, cloud.Parameter{Name: name, Value: value})
	}
	return err
}

// parseLimits decodes the limits of I/O of a class. The kernel has one limit for reads and one for writes and none for their sum, so a
// parameter for both sets each of the two.
func parseLimits(field string, raw map[string]string) (driver.IOLimits, error) {
	var limits driver.IOLimits
	for _, p := range limitParameters {
		read, write := p.set(&limits)
		for _, name := range []string{p.both, p.read, p.write} {
			text, given := raw[name]
			if !given {
				continue
			}
			if _, both := raw[p.both]; both && name != p.both {
				return driver.IOLimits{}, fmt.Errorf("%s: %s sets reads and writes: give it, or %s and %s: %w", field, p.both, p.read, p.write, fault.InvalidArgument)
			}
			value, err := p.parse(text)
			if err != nil {
				return driver.IOLimits{}, fmt.Errorf("%s: %s: %w", field, name, err)
			}
			if name != p.write {
				*read = value
			}
			if name != p.read {
				*write = value
			}
		}
	}
	return limits, nil
}

// parseIOPS parses operations a second.
func parseIOPS(text string) (int64, error) {
	value, err := strconv.ParseUint(text, 10, 63)
	if err != nil || value < driver.MinIOPS || value > driver.MaxIOPS || value%driver.StepIOPS != 0 {
		return 0, fmt.Errorf("not a number of operations a second from %d to %d in steps of %d: %w",
			driver.MinIOPS, driver.MaxIOPS, driver.StepIOPS, fault.InvalidArgument)
	}
	return int64(value), nil
}

// units are the suffixes of quantities of Kubernetes.
var units = map[string]uint64{
	"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
}

// parseBandwidth parses bytes a second, written as a quantity of Kubernetes without a fraction.
func parseBandwidth(text string) (int64, error) {
	digits := strings.TrimRight(text, "kKMGTi")
	unit, known := units[text[len(digits):]]
	value, err := strconv.ParseUint(digits, 10, 63)
	if !known || err != nil || value > math.MaxInt64/unit || value*unit < driver.MinBandwidth {
		return 0, fmt.Errorf("not a whole number of bytes a second of at least 1Mi, such as 100Mi: %w", fault.InvalidArgument)
	}
	return int64(value * unit), nil
}

func parseBool(value string) (bool, error) {
	if value != "true" && value != "false" {
		return false, fmt.Errorf("neither true nor false: %w", fault.InvalidArgument)
	}
	return value == "true", nil
}

// onlyValue accepts the only value of a vendor's parameter that this driver supports.
func onlyValue(value, only string) error {
	if value != only {
		return fmt.Errorf("this driver encrypts with %s only: %w", only, fault.InvalidArgument)
	}
	return nil
}

// checkFilesystem refuses a class whose filesystem differs from that of the capabilities: only the capability reaches the node.
func (p *volumeParameters) checkFilesystem(list []*csi.VolumeCapability) error {
	for _, c := range list {
		if p.filesystem != "" && c.GetMount() != nil && c.GetMount().GetFsType() != p.filesystem {
			return fmt.Errorf("parameters: %s: differs from fs_type in volume_capabilities: %w", paramFilesystem, fault.InvalidArgument)
		}
	}
	return nil
}

// mutableParameters are the decoded parameters of a VolumeAttributesClass.
type mutableParameters struct {
	tags   []cloud.Tag
	limits driver.IOLimits
}

// parseMutableParameters decodes the parameters of a VolumeAttributesClass: the tags, and limits of I/O.
func (s *Service) parseMutableParameters(raw map[string]string) (p mutableParameters, err error) {
	const field = "mutable_parameters"
	if len(raw) > 0 && !s.caps.Modify {
		return p, fmt.Errorf("%s: with this cloud nothing can be modified: %w", field, fault.InvalidArgument)
	}
	if err := driver.CheckMap(field, raw); err != nil {
		return p, err
	}
	known := append(limitNames(), paramTags)
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if !slices.Contains(known, name) {
			return p, unknownParameter(field, name, known)
		}
	}
	if p.limits, err = parseLimits(field, raw); err != nil {
		return p, err
	}
	if tags, given := raw[paramTags]; given {
		if p.tags, err = ParseTags(strings.Split(tags, ",")); err != nil {
			return p, fmt.Errorf("%s: %s: %w", field, paramTags, err)
		}
	}
	return p, nil
}

// mergeLimits returns the limits of a StorageClass and of a VolumeAttributesClass. Those of the latter override the others.
func mergeLimits(class, mutable driver.IOLimits) driver.IOLimits {
	return driver.IOLimits{
		ReadIOPS:       cmp.Or(mutable.ReadIOPS, class.ReadIOPS),
		WriteIOPS:      cmp.Or(mutable.WriteIOPS, class.WriteIOPS),
		ReadBandwidth:  cmp.Or(mutable.ReadBandwidth, class.ReadBandwidth),
		WriteBandwidth: cmp.Or(mutable.WriteBandwidth, class.WriteBandwidth),
	}
}

// parseSnapshotParameters returns the parameters of a VolumeSnapshotClass: tags, and those of the cloud, sorted by name.
func (s *Service) parseSnapshotParameters(raw map[string]string) (tags []cloud.Tag, backend []cloud.Parameter, err error) {
	if err := driver.CheckMap("parameters", raw); err != nil {
		return nil, nil, err
	}
	known := slices.Concat([]string{paramTags}, slices.Collect(maps.Keys(snapshotMetadata)), s.caps.SnapshotParameters)
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		tag, named := snapshotMetadata[name]
		switch {
		case named:
			tags = append(tags, cloud.Tag{Key: tag, Value: raw[name]})
		case name == paramTags:
			own, err := ParseTags(strings.Split(raw[name], ","))
			if err != nil {
				return nil, nil, fmt.Errorf("parameters: %s: %w", name, err)
			}
			tags = append(tags, own...)
		case slices.Contains(known, name):
			backend = append(backend, cloud.Parameter{Name: name, Value: raw[name]})
		default:
			return nil, nil, unknownParameter("parameters", name, known)
		}
	}
	return tags, backend, nil
}

func unknownParameter(field, name string, known []string) error {
	if len(name) > shownName {
		name = name[:shownName] + "..."
	}
	return fmt.Errorf("%s: unknown %q; known are %s: %w",
		field, name, strings.Join(slices.Sorted(slices.Values(known)), ", "), fault.InvalidArgument)
}

// ParseTags parses entries of the form key=value.
func ParseTags(entries []string) ([]cloud.Tag, error) {
	var tags []cloud.Tag
	for i, entry := range entries {
		key, text, found := strings.Cut(strings.TrimSpace(entry), "=")
		switch {
		case !found || key == "":
			return nil, fmt.Errorf("entry %d is not of the form key=value: %w", i+1, fault.InvalidArgument)
		case strings.HasPrefix(strings.ToLower(key), cloud.OwnTags): // some clouds ignore case
			return nil, fmt.Errorf("entry %d begins with %q, which is this driver's own: %w", i+1, cloud.OwnTags, fault.InvalidArgument)
		case strings.ContainsFunc(entry, func(r rune) bool { return r < ' ' || r > '~' }):
			return nil, fmt.Errorf("entry %d has a character that is not printable ASCII: %w", i+1, fault.InvalidArgument)
		case slices.ContainsFunc(tags, func(t cloud.Tag) bool { return t.Key == key }):
			return nil, fmt.Errorf("entry %d repeats a key: %w", i+1, fault.InvalidArgument)
		}
		tags = append(tags, cloud.Tag{Key: key, Value: text})
	}
	return tags, nil
}

// parseTagWords parses a vendor's list of tags, which are words of the cloud. A word with a colon has a key and a value; the usual
// spaces after a comma are not part of a tag.
func parseTagWords(list string) ([]cloud.Tag, error) {
	var tags []cloud.Tag
	for i, word := range strings.Split(list, ",") {
		word = strings.TrimSpace(word)
		key, text, _ := strings.Cut(word, ":")
		switch {
		case key == "":
			return nil, fmt.Errorf("entry %d is empty or begins with a colon: %w", i+1, fault.InvalidArgument)
		case strings.HasPrefix(strings.ToLower(key), cloud.OwnTags):
			return nil, fmt.Errorf("entry %d begins with %q, which is this driver's own: %w", i+1, cloud.OwnTags, fault.InvalidArgument)
		case strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r > '~' }):
			return nil, fmt.Errorf("entry %d has a character that is not printable ASCII: %w", i+1, fault.InvalidArgument)
		}
		tags = append(tags, cloud.Tag{Key: key, Value: text})
	}
	return tags, nil
}

// mergeTags returns the tags of the whole driver and of a class. Those of the class override the others.
func mergeTags(driverWide, class []cloud.Tag) []cloud.Tag {
	merged := slices.DeleteFunc(slices.Clone(driverWide), func(t cloud.Tag) bool {
		return slices.ContainsFunc(class, func(c cloud.Tag) bool { return c.Key == t.Key })
	})
	return append(merged, class...)
}
