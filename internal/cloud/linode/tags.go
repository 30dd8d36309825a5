package linode

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/linode/linodego"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
)

// tagRule is what the cloud allows in tags: words of 3 to 50 characters.
var tagRule = tags.Rule{
	Word: regexp.MustCompile(`^[a-zA-Z0-9_:./=@+ -]+$`), Letters: "letters, digits, spaces and any of _ : . / = @ + -",
	Shortest: 3, Longest: 50,
}

// needed are the keys of the tags that a volume is recognised by. All others are optional.
var needed = []string{tags.Hash, tags.Cluster, tags.FromVolume, tags.FromSnapshot, tags.SnapshotOf}

// tagsOf returns the tags of a new volume.
func (c *Cloud) tagsOf(req cloud.CreateVolumeRequest) ([]string, error) {
	var own []cloud.Tag
	if c.shortened(req.Name) {
		own = append(own, cloud.Tag{Key: tags.Hash, Value: cloud.FullHash(req.Name)})
	}
	if req.Source.Volume != "" {
		own = append(own, cloud.Tag{Key: tags.FromVolume, Value: string(req.Source.Volume)})
	}
	if req.Source.Snapshot != "" {
		own = append(own, cloud.Tag{Key: tags.FromSnapshot, Value: string(req.Source.Snapshot)})
	}
	return c.words(req.Tags, own...)
}

// words returns the tags of a request and the driver's own, which include the cluster, as words of the cloud. They are as few as
// possible: an account's users with restricted access may not be allowed to set any.
func (c *Cloud) words(given []cloud.Tag, own ...cloud.Tag) ([]string, error) {
	all := slices.DeleteFunc(slices.Clone(given), func(t cloud.Tag) bool {
		return strings.HasPrefix(t.Key, tags.Own) && (t.Key == tags.Cluster || !c.kubernetesTags)
	})
	return tagRule.Words(append(append(all, own...), cloud.Tag{Key: tags.Cluster, Value: c.cluster}))
}

// madeFor reports whether a volume that has the label of a request name was made for it, and for this cluster. A label
// that is the whole name needs no hash. The cloud may keep the capitals that a
// tag was first written with, so they do not count.
func (c *Cloud) madeFor(name string, v *volume) bool {
	hash := tags.Value(v.Tags, tags.Hash)
	return c.ours(v) && (hash == cloud.FullHash(name) || hash == "" && !c.shortened(name))
}

// withTags sends a request that sets tags. Where the cloud may have refused it for them, it is sent once more without
// the optional ones.
func (c *Cloud) withTags(words []string, send func(words []string) (*volume, error)) (*volume, error) {
	v, err := send(words)
	optional := slices.DeleteFunc(slices.Clone(words), isNeeded)
	if aboutTags(err) && len(optional) > 0 {
		c.log.Warn("the cloud refuses the request with its tags, so it is sent without the optional ones", zap.Strings("left_out", optional), zap.Error(err))
		words = slices.DeleteFunc(slices.Clone(words), func(word string) bool { return !isNeeded(word) })
		v, err = send(words)
	}
	if aboutTags(err) && len(words) > 0 {
		err = fmt.Errorf("%w; it sets the tags %s, which the cloud may not allow to users with restricted access", err, strings.Join(words, ", "))
	}
	return v, err
}

func isNeeded(word string) bool {
	key, _, _ := strings.Cut(word, ":")
	return slices.Contains(needed, key)
}

// tagText is in what the cloud says about tags.
var tagText = regexp.MustCompile(`(?i)\btags?\b`)

// aboutTags reports whether a refusal may be about tags. A 403 never says what is not allowed.
func aboutTags(refusal error) bool {
	a := api.AnswerOf(refusal)
	switch {
	case a == nil:
		return false
	case a.Status == http.StatusBadRequest || a.Status == http.StatusUnauthorized:
		return slices.Contains(a.Fields, "tags") || tagText.MatchString(a.Words)
	default:
		return a.Status == http.StatusForbidden
	}
}

// ModifyVolume puts tags on a volume.
func (c *Cloud) ModifyVolume(ctx context.Context, id cloud.VolumeID, list []cloud.Tag) error {
	wanted, err := tagRule.Given(list)
	if err != nil {
		return fmt.Errorf("modify volume %.80q: %w", id, err)
	}
	return c.Modify(ctx, block.Modification{
		ID: id, Tags: tags.Read(wanted),
		Merge: func(has []cloud.Tag) []cloud.Tag { return tags.Read(tags.Replace(tags.Joined(has), wanted)) },
		Send: func(ctx context.Context, w *ops.Write, all []cloud.Tag) (string, error) {
			words := tags.Joined(all)
			_, err := c.update(ctx, w, api.Number(id), linodego.VolumeUpdateOptions{Tags: &words})
			return "", err
		},
	})
}
