package yandex

import (
	"fmt"
	"regexp"
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
