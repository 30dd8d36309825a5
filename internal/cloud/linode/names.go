package linode

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// labels are the cloud's documented rules for the labels of volumes: letters, digits, dashes and underscores, beginning with a letter,
// no two dashes or underscores in a row, at most 32. The driver uses no capitals, no underscores and no dash at the end: the
// documentation does not say whether labels that differ only in these are different, or whether such a dash is allowed.
var labels = cloud.NameRule{MinLen: 2, MaxLen: 32, StartLetter: true, EndAlnum: true, NoDoubles: true}

// devicePrefix is the prefix of the link that udev makes for a volume; its label follows.
var devicePrefix = profile.Linode.LinkPrefix

var slug = regexp.MustCompile(`^[a-z][a-z0-9-]{1,30}$`)

func volumeID(n int) cloud.VolumeID { return cloud.VolumeID(strconv.Itoa(n)) }

func nodeID(linode int) cloud.NodeID { return cloud.NodeID(strconv.Itoa(linode)) }

// labelOf returns the label for the name of a request.
func (c *Cloud) labelOf(name string) string { return labels.Map(c.prefix, name) }

// shortened reports whether the label differs from the name of the request.
func (c *Cloud) shortened(name string) bool { return c.labelOf(name) != c.prefix+name }

// copying is the prefix of the labels of this cluster's unfinished copies. No request's name is mapped to such a label, because of the
// underscores.
func (c *Cloud) copying() string { return "clone_" + cloud.FullHash(c.cluster)[:8] + "_" }

// temporaryLabel returns the label of an unfinished copy, with an 80-bit hash of the request and its source. Copies have no tags, so only
// the label identifies the request.
func (c *Cloud) temporaryLabel(request string, source int) string {
	return c.copying() + cloud.FullHash(request + "\x00" + strconv.Itoa(source))[:16]
}

// snapshotPrefix is the prefix of the labels of this cluster's snapshots. No request's name is mapped to such a label, because of the
// underscores.
func (c *Cloud) snapshotPrefix() string { return "snap_" + cloud.FullHash(c.cluster)[:8] + "_" }

// snapshotLabel returns the label of a snapshot, with an 80-bit hash of the request.
func (c *Cloud) snapshotLabel(request string) string {
	return c.snapshotPrefix() + cloud.FullHash(request)[:16]
}

// snapshotLabel matches the labels of the snapshots of all clusters.
var snapshotLabel = regexp.MustCompile(`^snap_[0-9a-v]{8}_[0-9a-v]{16}$`)

// copyLabel matches the labels of unfinished copies of all clusters.
var copyLabel = regexp.MustCompile(`^clone_[0-9a-v]{8}_[0-9a-v]{16}$`)

// markOf returns the Mark of a volume from its tags, or without these from its label, as that of most unfinished copies and of a snapshot
// that has lost them. Only its label shows that a copy is unfinished: it has the tags of the complete one if a call goes on with it late.
func (c *Cloud) markOf(v *volume) cloud.Mark {
	mark, ours := tags.MarkOf(v.Tags), c.ours(v)
	switch {
	case mark.Driver:
	case copyLabel.MatchString(v.Label):
		mark.Driver = true
		ours = strings.HasPrefix(v.Label, c.copying())
	case snapshotLabel.MatchString(v.Label):
		mark.Driver = true
		ours = strings.HasPrefix(v.Label, c.snapshotPrefix())
	}
	if ours {
		mark.Cluster = c.cluster
	}
	mark.Temporary = copyLabel.MatchString(v.Label)
	return mark
}

// ours reports whether a volume has the tag of this cluster. It ignores case, because the cloud may keep the case with which a tag was
// first written.
func (c *Cloud) ours(v *volume) bool {
	return strings.EqualFold(tags.Value(v.Tags, tags.Cluster), c.cluster)
}

// CheckPrefix refuses a prefix of labels that the cloud would refuse.
func CheckPrefix(prefix string) error {
	return labels.CheckPrefix(prefix, "labels begin with a letter and have lower-case letters, digits and single dashes")
}

// CheckRegion refuses what cannot be the id of a region; "" is allowed.
func CheckRegion(region string) error {
	if region != "" && !slug.MatchString(region) {
		return fmt.Errorf("%q is not the id of a region, such as us-ord: %w", region, fault.InvalidArgument)
	}
	return nil
}

// CheckTags refuses tags that the cloud would refuse.
func CheckTags(tags []cloud.Tag) error {
	_, err := tagRule.Words(tags)
	return err
}
