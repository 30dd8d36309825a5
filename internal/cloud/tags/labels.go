package tags

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Owner is the cluster that a backend works for, in a cloud whose labels are pairs of key and value.
type Owner struct {
	// Value returns the value of a tag as the cloud takes it, or refuses the tag.
	Value func(cloud.Tag) (string, error)
	// Max is how many labels an object can have; 0: any number.
	Max     int
	Cluster string
}

// Labels returns those of a new object: the request's and the driver's own.
func (o Owner) Labels(name string, asked []cloud.Tag, source cloud.Source, own ...cloud.Tag) (map[string]string, error) {
	asked = slices.Concat(asked, own, ownTags(name, o.Cluster, source))
	all := make(map[string]string, len(asked))
	for _, t := range asked {
		value, err := o.Value(t)
		if err != nil {
			return nil, err
		}
		all[t.Key] = value
	}
	if o.Max > 0 && len(all) > o.Max {
		return nil, fmt.Errorf("%d labels with the driver's own, the cloud takes %d: %w", len(all), o.Max, fault.InvalidArgument)
	}
	return all, nil
}

// MarkOfLabels reads whose an object with these labels is.
func MarkOfLabels(labels map[string]string) cloud.Mark {
	return cloud.Mark{Driver: labels[Cluster] != "", Cluster: labels[Cluster]}
}

// MadeHere reports whether these are the labels of an object of this cluster, whatever its name.
func (o Owner) MadeHere(labels map[string]string) bool {
	return labels[Cluster] == o.Cluster && labels[Hash] != ""
}

// MadeFor reports whether these are the labels of the object that this cluster made for the request name.
func (o Owner) MadeFor(name string, labels map[string]string) bool {
	return o.MadeHere(labels) && labels[Hash] == cloud.FullHash(name)
}

// ReadLabels returns labels in order, so that equal sets are equal lists.
func ReadLabels(labels map[string]string) []cloud.Tag {
	tags := make([]cloud.Tag, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		tags = append(tags, cloud.Tag{Key: key, Value: labels[key]})
	}
	return tags
}
