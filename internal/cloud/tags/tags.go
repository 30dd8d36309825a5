// Package tags encodes and decodes what the driver stores with an object as tags or labels of a cloud: the object's cluster, its
// request and its source.
package tags

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The keys of the driver's own tags.
const (
	// Own is their prefix.
	Own = cloud.OwnTags
	// Cluster is the cluster that an object was created for.
	Cluster = Own + "cluster"
	// Hash distinguishes requests whose cloud names are equal, and this driver's objects from others'.
	Hash = Own + "name-hash"
	// FromSnapshot and FromVolume are a volume's source, for clouds that do not store it.
	FromSnapshot = Own + "source-snapshot"
	FromVolume   = Own + "source-volume"
	// SnapshotOf is the volume of a snapshot, in a cloud whose snapshots are volumes.
	SnapshotOf = Own + "snapshot-of"
)

// Rule describes the tags of a cloud whose tags are single words. Each tag is written as key:value.
type Rule struct {
	// Word matches a word of one or more allowed characters.
	Word *regexp.Regexp
	// Letters describes the allowed characters in errors.
	Letters string
	// Shortest and Longest are the minimum and maximum length of a word.
	Shortest, Longest int
}

// Words returns tags as words of the cloud, sorted and without duplicates, or an error if the cloud would refuse one.
func (r Rule) Words(tags []cloud.Tag) ([]string, error) {
	var words []string
	for _, t := range tags {
		word, err := r.Write(t)
		if err != nil {
			return nil, err
		}
		words = append(words, word)
	}
	slices.Sort(words)
	return slices.Compact(words), nil
}

// Given returns tags as Words, but none of the driver's own.
func (r Rule) Given(tags []cloud.Tag) ([]string, error) {
	for _, t := range tags {
		if strings.HasPrefix(strings.ToLower(t.Key), Own) {
			return nil, fmt.Errorf("tag %q is the driver's own: %w", t.Key, fault.InvalidArgument)
		}
	}
	return r.Words(tags)
}

// Write returns a tag as a word of the cloud. It adapts the values of the driver's own tags, such as the names of Kubernetes
// objects, with Safe. Other tags and the cluster must fit unchanged.
func (r Rule) Write(t cloud.Tag) (string, error) {
	value := t.Value
	if strings.HasPrefix(t.Key, Own) && t.Key != Cluster {
		value = Safe(value, r.Word, r.Longest-len(t.Key)-1)
	}
	word := t.Key
	if value != "" {
		word += ":" + value
	}
	switch {
	case strings.Contains(t.Key, ":"):
		return "", fmt.Errorf("tag %q: the key has a colon, which ends a key in this cloud: %w", t.Key, fault.InvalidArgument)
	case !r.Word.MatchString(word):
		return "", fmt.Errorf("tag %q: the cloud allows %s only: %w", t.Key, r.Letters, fault.InvalidArgument)
	case len(word) > r.Longest:
		return "", fmt.Errorf("tag %q: it has %d characters with its value, the cloud allows %d: %w", t.Key, len(word), r.Longest, fault.InvalidArgument)
	case len(word) < r.Shortest:
		return "", fmt.Errorf("tag %q: it has %d characters with its value, the cloud wants %d: %w", t.Key, len(word), r.Shortest, fault.InvalidArgument)
	}
	return word, nil
}

// Safe replaces characters that word does not match, such as the dots in the name of a PersistentVolumeClaim, with '_', and cuts the
// value to the length most.
func Safe(value string, word *regexp.Regexp, most int) string {
	value = strings.Map(func(c rune) rune {
		if c < 0x80 && word.MatchString(string(c)) {
			return c
		}
		return '_'
	}, value)
	return value[:max(0, min(len(value), most))]
}

// Change returns which of the wanted words an object lacks, and which of its words to remove because a wanted one has the same key.
// It ignores case, because clouds keep the case in which a tag was first written.
func Change(has, want []string) (add, remove []string) {
	lacks := func(words []string) func(string) bool {
		return func(word string) bool {
			return !slices.ContainsFunc(words, func(other string) bool { return strings.EqualFold(word, other) })
		}
	}
	keys := make([]string, 0, len(want))
	for _, word := range want {
		key, _, _ := strings.Cut(word, ":")
		keys = append(keys, key)
		if lacks(has)(word) {
			add = append(add, word)
		}
	}
	for _, word := range has {
		key, _, _ := strings.Cut(word, ":")
		if lacks(want)(word) && !lacks(keys)(key) {
			remove = append(remove, word)
		}
	}
	return add, remove
}

// Replace returns the words of an object after a Change, sorted.
func Replace(has, want []string) []string {
	add, remove := Change(has, want)
	words := slices.DeleteFunc(slices.Clone(has), func(word string) bool { return slices.Contains(remove, word) })
	return slices.Sorted(slices.Values(append(words, add...)))
}

// Read returns the cloud's words as tags, sorted, so that equal sets are equal lists. Joined returns the words again.
func Read(words []string) []cloud.Tag {
	words = slices.Sorted(slices.Values(words))
	tags := make([]cloud.Tag, 0, len(words))
	for _, word := range words {
		key, value, _ := strings.Cut(word, ":")
		if value == "" {
			key = word
		}
		tags = append(tags, cloud.Tag{Key: key, Value: value})
	}
	return tags
}

// Joined returns tags as words.
func Joined(tags []cloud.Tag) []string {
	words := make([]string, 0, len(tags))
	for _, t := range tags {
		word := t.Key
		if t.Value != "" {
			word += ":" + t.Value
		}
		words = append(words, word)
	}
	return words
}

// Value returns the value of a key, or "".
func Value(words []string, key string) string {
	for _, word := range words {
		if k, value, _ := strings.Cut(word, ":"); k == key {
			return value
		}
	}
	return ""
}

// MarkOf returns the Mark of an object with these tags.
func MarkOf(words []string) cloud.Mark {
	cluster := Value(words, Cluster)
	return cloud.Mark{Driver: cluster != "", Cluster: cluster}
}

// SourceOf returns the source of a volume with these tags.
func SourceOf(words []string) cloud.Source {
	return cloud.Source{
		Snapshot: cloud.SnapshotID(Value(words, FromSnapshot)),
		Volume:   cloud.VolumeID(Value(words, FromVolume)),
	}
}

// ownTags returns the driver's own tags of the object of a request.
func ownTags(name, cluster string, source cloud.Source) []cloud.Tag {
	own := []cloud.Tag{{Key: Hash, Value: cloud.FullHash(name)}}
	for _, t := range []cloud.Tag{
		{Key: Cluster, Value: cluster}, {Key: FromSnapshot, Value: string(source.Snapshot)}, {Key: FromVolume, Value: string(source.Volume)},
	} {
		if t.Value != "" {
			own = append(own, t)
		}
	}
	return own
}
