package tags

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Owner is the cluster of a backend, in a cloud whose labels are key-value pairs.
type Owner struct {
	// Value returns the value of a tag in the cloud's form, or an error if the cloud would refuse the tag.
	Value func(cloud.Tag) (string, error)
	// Max is the maximum number of labels of an object; 0: no limit.
	Max     int
	Cluster string
}

// Labels returns the labels of a new object: the request's and the driver's own.
func (o Owner) Labels(name string, asked []cloud.Tag, source cloud.Source, own ...cloud.Tag) (map[string]string, error) {
	all, err := o.values(slices.Concat(asked, own, ownTags(name, o.Cluster, source)))
	if err != nil {
		return nil, err
	}
	if o.Max > 0 && len(all) > o.Max {
		return nil, fmt.Errorf("%d labels with the driver's own, the cloud takes %d: %w", len(all), o.Max, fault.InvalidArgument)
	}
	return all, nil
}

// Given returns a request's labels, sorted, in the cloud's form. The driver's own are refused.
func (o Owner) Given(asked []cloud.Tag) ([]cloud.Tag, error) {
	if i := slices.IndexFunc(asked, func(t cloud.Tag) bool { return strings.HasPrefix(t.Key, Own) }); i >= 0 {
		return nil, fmt.Errorf("label %q is the driver's own: %w", asked[i].Key, fault.InvalidArgument)
	}
	all, err := o.values(asked)
	return ReadLabels(all), err
}

func (o Owner) values(of []cloud.Tag) (map[string]string, error) {
	all := make(map[string]string, len(of))
	for _, t := range of {
		value, err := o.Value(t)
		if err != nil {
			return nil, err
		}
		all[t.Key] = value
	}
	return all, nil
}

// Merge returns labels, sorted, with those that replace the ones with the same keys.
func Merge(has, with []cloud.Tag) []cloud.Tag {
	all := Labels(has)
	maps.Copy(all, Labels(with))
	return ReadLabels(all)
}

// Labels returns tags by their keys.
func Labels(tags []cloud.Tag) map[string]string {
	labels := make(map[string]string, len(tags))
	for _, t := range tags {
		labels[t.Key] = t.Value
	}
	return labels
}

// MarkOfLabels returns the Mark of an object with these labels.
func MarkOfLabels(labels map[string]string) cloud.Mark {
	return cloud.Mark{Driver: labels[Cluster] != "", Cluster: labels[Cluster]}
}

// MadeHere reports whether this cluster created the object with these labels, for any name.
func (o Owner) MadeHere(labels map[string]string) bool {
	return labels[Cluster] == o.Cluster && labels[Hash] != ""
}

// MadeFor reports whether this cluster created the object with these labels for the request name.
func (o Owner) MadeFor(name string, labels map[string]string) bool {
	return o.MadeHere(labels) && labels[Hash] == cloud.FullHash(name)
}

// ReadLabels returns labels sorted by key, so that equal sets are equal lists.
func ReadLabels(labels map[string]string) []cloud.Tag {
	tags := make([]cloud.Tag, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		tags = append(tags, cloud.Tag{Key: key, Value: labels[key]})
	}
	return tags
}
