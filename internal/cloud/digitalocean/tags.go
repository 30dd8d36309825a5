package digitalocean

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
)

// The keys of tags that only this cloud needs.
const (
	// tagGrow is a wish to grow that the cloud refused while the volume was attached.
	tagGrow = remote.OwnTags + "grow"
	// tagTemporary marks the snapshot through which a clone goes.
	tagTemporary = remote.OwnTags + "temporary"
)

// longestTag is what the cloud documents for tags; longestReason is how much of one a reason may take.
const (
	longestTag    = 255
	longestReason = longestTag - 64
)

// tagRule is what the cloud allows in tags.
var tagRule = remote.TagRule{
	Word: regexp.MustCompile(`^[a-zA-Z0-9_:-]+$`), Letters: "letters, digits, '_', '-' and ':'", Shortest: 1, Longest: longestTag,
}

// CheckTags refuses tags that the cloud would refuse.
func CheckTags(tags []cloud.Tag) error { return tagRule.Check(tags) }

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

// wishesAbove returns the words of the wishes for more than a size.
func wishesAbove(words []string, gib int64) []string {
	return slices.DeleteFunc(wishWords(words), func(word string) bool {
		w, readable := wishOf([]string{word})
		return !readable || w.gib <= gib
	})
}

// word is the wish as a tag.
func (w wish) word() string {
	word := tagGrow + ":" + strconv.FormatInt(w.gib, 10)
	if w.failed != "" {
		word += ":" + tagRule.Safe(w.failed, longestReason)
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
