package yandex

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The labels of this backend alone. Those that every cloud has are in package tags.
const (
	// labelTemporary marks the snapshot through which a clone goes.
	labelTemporary = tags.Own + "temporary"
	// labelParameters says which parameters the class gave; the disk itself has their values.
	labelParameters = tags.Own + "parameters"
	// labelSchedules has the ids of the snapshot schedules that the class gave, with scheduleMark between them. A disk does
	// not show its schedules.
	labelSchedules = tags.Own + "snapshot-schedules"
	scheduleMark   = "/"
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

// labels returns those of a new disk or snapshot: the request's and the driver's own.
func (c *Cloud) labels(name string, asked []cloud.Tag, source cloud.Source, own ...cloud.Tag) (map[string]string, error) {
	own = append(own, cloud.Tag{Key: tags.Hash, Value: cloud.FullHash(name)})
	if c.cluster != "" {
		own = append(own, cloud.Tag{Key: tags.Cluster, Value: c.cluster})
	}
	if source.Snapshot != "" {
		own = append(own, cloud.Tag{Key: tags.FromSnapshot, Value: string(source.Snapshot)})
	}
	if source.Volume != "" {
		own = append(own, cloud.Tag{Key: tags.FromVolume, Value: string(source.Volume)})
	}
	all := make(map[string]string, len(asked)+len(own))
	for _, t := range slices.Concat(asked, own) {
		value, err := labelOf(t)
		if err != nil {
			return nil, err
		}
		all[t.Key] = value
	}
	if len(all) > maxLabels {
		return nil, fmt.Errorf("%d labels with the driver's own, the cloud takes %d: %w", len(all), maxLabels, fault.InvalidArgument)
	}
	return all, nil
}

// tagsOf returns labels in order, so that equal sets are equal lists.
func tagsOf(labels map[string]string) []cloud.Tag {
	tags := make([]cloud.Tag, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		tags = append(tags, cloud.Tag{Key: key, Value: labels[key]})
	}
	return tags
}

// madeHere reports whether these are the labels of an object of this cluster, whatever its name.
func (c *Cloud) madeHere(labels map[string]string) bool {
	return labels[tags.Cluster] == c.cluster && labels[tags.Hash] != ""
}

// madeFor reports whether these are the labels of the object that this cluster made for the request name.
func (c *Cloud) madeFor(name string, labels map[string]string) bool {
	return c.madeHere(labels) && labels[tags.Hash] == cloud.FullHash(name)
}
