// Package tags writes what the driver keeps with an object in a cloud whose tags are single words, and reads it: whose
// object it is, which request it was made for, and its source.
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
	// Own begins them.
	Own = cloud.OwnTags
	// Cluster says which cluster an object was made for.
	Cluster = Own + "cluster"
	// Hash tells requests apart whose cloud names are equal, and this driver's objects from others'.
	Hash = Own + "name-hash"
	// FromSnapshot and FromVolume hold a volume's source, where the cloud forgets it.
	FromSnapshot = Own + "source-snapshot"
	FromVolume   = Own + "source-volume"
)

// Rule describes the tags of a cloud whose tags are single words. Each tag is written as key:value.
type Rule struct {
	// Word matches a word with one character at least, and each character that may be in it.
	Word *regexp.Regexp
	// Letters names the characters, for errors.
	Letters string
	// Shortest and Longest bound the length of a word.
	Shortest, Longest int
}

// Check refuses tags that the cloud would refuse.
func (r Rule) Check(tags []cloud.Tag) error {
	for _, t := range tags {
		if _, err := r.Write(t); err != nil {
			return err
		}
	}
	return nil
}

// Write writes a tag as the cloud's word. The names of Kubernetes' objects are taken as far as the cloud
// allows their letters and has room; anything else must fit as it is.
func (r Rule) Write(t cloud.Tag) (string, error) {
	value := t.Value
	if strings.HasPrefix(t.Key, Own) && t.Key != Cluster {
		value = r.Safe(value, r.Longest-len(t.Key)-1)
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

// Safe puts '_' for what the cloud does not allow, such as the dots of a claim's name, and cuts what
// is longer than most.
func (r Rule) Safe(value string, most int) string {
	value = strings.Map(func(c rune) rune {
		if c < 0x80 && r.Word.MatchString(string(c)) {
			return c
		}
		return '_'
	}, value)
	return value[:max(0, min(len(value), most))]
}

// Change says which of the words wanted an object lacks, and which it has under their keys. Clouds keep the capitals
// that a tag was first written with, so they do not count.
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

// Replace returns what an object has after a Change, sorted.
func Replace(has, want []string) []string {
	add, remove := Change(has, want)
	words := slices.DeleteFunc(slices.Clone(has), func(word string) bool { return slices.Contains(remove, word) })
	return slices.Sorted(slices.Values(append(words, add...)))
}

// Read reads the cloud's words, sorted, so that equal sets are equal lists.
func Read(words []string) []cloud.Tag {
	words = slices.Sorted(slices.Values(words))
	tags := make([]cloud.Tag, 0, len(words))
	for _, word := range words {
		key, value, _ := strings.Cut(word, ":")
		tags = append(tags, cloud.Tag{Key: key, Value: value})
	}
	return tags
}

// Value returns the value of a key, or nothing.
func Value(words []string, key string) string {
	for _, word := range words {
		if k, value, _ := strings.Cut(word, ":"); k == key {
			return value
		}
	}
	return ""
}

// MarkOf reads whose an object with these tags is.
func MarkOf(words []string) cloud.Mark {
	cluster := Value(words, Cluster)
	return cloud.Mark{Driver: cluster != "", Cluster: cluster}
}

// SourceOf returns the source that a volume's tags tell.
func SourceOf(words []string) cloud.Source {
	return cloud.Source{
		Snapshot: cloud.SnapshotID(Value(words, FromSnapshot)),
		Volume:   cloud.VolumeID(Value(words, FromVolume)),
	}
}

// ownTags are the driver's own of an object that is made for a request.
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
