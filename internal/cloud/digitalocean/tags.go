package digitalocean

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The keys of the driver's own tags. A tag of this cloud is one word; key and value stand in it with a
// colon between them.
const (
	tagPrefix  = "cloudblock-"
	tagCluster = tagPrefix + "cluster"
	// tagHash tells requests apart whose cloud names are equal, and this driver's objects from others'.
	tagHash = tagPrefix + "name-hash"
	// tagFromSnapshot and tagFromVolume hold a volume's source, which the cloud forgets.
	tagFromSnapshot = tagPrefix + "source-snapshot"
	tagFromVolume   = tagPrefix + "source-volume"
	// tagGrow is a wish to grow that the cloud refused while the volume was attached.
	tagGrow = tagPrefix + "grow"
	// tagTemporary marks the snapshot through which a clone goes.
	tagTemporary = tagPrefix + "temporary"
)

// longestTag and tagWord are what the cloud documents for tags.
const longestTag = 255

var tagWord = regexp.MustCompile(`^[a-zA-Z0-9_:-]+$`)

// CheckTags refuses tags that the cloud would refuse.
func CheckTags(tags []cloud.Tag) error {
	for _, t := range tags {
		if _, err := tagOf(t); err != nil {
			return err
		}
	}
	return nil
}

// tagOf writes a tag as the cloud's word. The names of Kubernetes' objects are taken as far as the cloud
// allows their letters; anything else must fit as it is.
func tagOf(t cloud.Tag) (string, error) {
	value := t.Value
	if strings.HasPrefix(t.Key, tagPrefix) && t.Key != tagCluster {
		value = tagSafe(value)
	}
	word := t.Key
	if value != "" {
		word += ":" + value
	}
	switch {
	case strings.Contains(t.Key, ":"):
		return "", fmt.Errorf("tag %q: the key has a colon, which ends a key in this cloud: %w", t.Key, fault.InvalidArgument)
	case !tagWord.MatchString(word):
		return "", fmt.Errorf("tag %q: the cloud allows letters, digits, '_', '-' and ':' only: %w", t.Key, fault.InvalidArgument)
	case len(word) > longestTag:
		return "", fmt.Errorf("tag %q: it has %d characters with its value, the cloud allows %d: %w", t.Key, len(word), longestTag, fault.InvalidArgument)
	}
	return word, nil
}

// tagSafe puts '_' for what the cloud does not allow, such as the dots of a claim's name, and cuts what
// is too long.
func tagSafe(value string) string {
	value = strings.Map(func(r rune) rune {
		if r < 0x80 && tagWord.MatchString(string(r)) {
			return r
		}
		return '_'
	}, value)
	return value[:min(len(value), longestTag-64)]
}

// words returns the tags of a new volume or snapshot: the request's and the driver's own.
func (c *Cloud) words(name string, tags []cloud.Tag, own ...cloud.Tag) ([]string, error) {
	own = append(own, cloud.Tag{Key: tagHash, Value: cloud.FullHash(name)})
	if c.cluster != "" {
		own = append(own, cloud.Tag{Key: tagCluster, Value: c.cluster})
	}
	words := make([]string, 0, len(tags)+len(own))
	for _, t := range slices.Concat(tags, own) {
		word, err := tagOf(t)
		if err != nil {
			return nil, err
		}
		words = append(words, word)
	}
	slices.Sort(words)
	return slices.Compact(words), nil
}

// tagsOf reads the cloud's words, sorted, so that equal sets are equal lists.
func tagsOf(words []string) []cloud.Tag {
	words = slices.Sorted(slices.Values(words))
	tags := make([]cloud.Tag, 0, len(words))
	for _, word := range words {
		key, value, _ := strings.Cut(word, ":")
		tags = append(tags, cloud.Tag{Key: key, Value: value})
	}
	return tags
}

// valueOf returns the value of a key, or nothing.
func valueOf(words []string, key string) string {
	for _, word := range words {
		if k, value, _ := strings.Cut(word, ":"); k == key {
			return value
		}
	}
	return ""
}

// madeHere reports whether these are the tags of an object of this cluster, whatever its name. The cloud
// keeps the capitals that a tag was first written with, so they do not count.
func (c *Cloud) madeHere(words []string) bool {
	return strings.EqualFold(valueOf(words, tagCluster), c.cluster) && valueOf(words, tagHash) != ""
}

// madeFor reports whether these are the tags of the object that this cluster made for the request name.
func (c *Cloud) madeFor(name string, words []string) bool {
	return c.madeHere(words) && valueOf(words, tagHash) == cloud.FullHash(name)
}

// A wish is a size to grow to when the cloud allows it.
type wish struct {
	gib int64
	// failed says why the last try failed; empty when there was none.
	failed string
}

// wishOf reads the wish from a volume's tags. Should there be two, the smaller one is taken: what has
// grown does not shrink again.
func wishOf(words []string) (w wish, found bool) {
	for _, word := range words {
		key, value, _ := strings.Cut(word, ":")
		if key != tagGrow {
			continue
		}
		size, failed, _ := strings.Cut(value, ":")
		gib, err := strconv.ParseInt(size, 10, 64)
		if err != nil || gib <= 0 || found && w.gib <= gib {
			continue
		}
		w, found = wish{gib: gib, failed: failed}, true
	}
	return w, found
}

// word is the wish as a tag.
func (w wish) word() string {
	word := tagGrow + ":" + strconv.FormatInt(w.gib, 10)
	if w.failed != "" {
		word += ":" + tagSafe(w.failed)
	}
	return word[:min(len(word), longestTag)]
}

// wishWords returns the words of all wishes.
func wishWords(words []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(word string) bool {
		key, _, _ := strings.Cut(word, ":")
		return key != tagGrow
	})
}
