package controller

import (
	"fmt"
	"maps"
	"slices"
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
	known := slices.Concat([]string{paramMkfsOptions, paramFormatNonZero, paramLUKS, paramTags, paramFilesystem},
		slices.Collect(maps.Keys(volumeMetadata)), s.caps.Parameters, vendor.ParameterNames())
	var p volumeParameters
	given := make(map[string]string, len(raw))
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if !slices.Contains(known, name) {
			return volumeParameters{}, unknownParameter("parameters", name, known)
		}
		meant := vendor.Parameter(name)
		if meant == "" {
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

// parseMutableParameters decodes the parameters of a VolumeAttributesClass: the tags, which are all that can be modified.
func (s *Service) parseMutableParameters(raw map[string]string) ([]cloud.Tag, error) {
	const field = "mutable_parameters"
	if len(raw) > 0 && !s.caps.Modify {
		return nil, fmt.Errorf("%s: with this cloud nothing can be modified: %w", field, fault.InvalidArgument)
	}
	if err := driver.CheckMap(field, raw); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if name != paramTags {
			return nil, unknownParameter(field, name, []string{paramTags})
		}
	}
	if len(raw) == 0 {
		return nil, nil
	}
	tags, err := ParseTags(strings.Split(raw[paramTags], ","))
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", field, paramTags, err)
	}
	return tags, nil
}

// parseSnapshotParameters returns the parameters of a VolumeSnapshotClass as tags.
func parseSnapshotParameters(raw map[string]string) ([]cloud.Tag, error) {
	if err := driver.CheckMap("parameters", raw); err != nil {
		return nil, err
	}
	known := append(slices.Collect(maps.Keys(snapshotMetadata)), paramTags)
	var tags []cloud.Tag
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		tag, named := snapshotMetadata[name]
		switch {
		case named:
			tags = append(tags, cloud.Tag{Key: tag, Value: raw[name]})
		case name == paramTags:
			own, err := ParseTags(strings.Split(raw[name], ","))
			if err != nil {
				return nil, fmt.Errorf("parameters: %s: %w", name, err)
			}
			tags = append(tags, own...)
		default:
			return nil, unknownParameter("parameters", name, known)
		}
	}
	return tags, nil
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
