package digitalocean

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// names are the cloud's documented rules for names of volumes: lower-case letters, digits and dashes, beginning with a letter, at most 64.
// Whether a dash at the end is allowed is not documented, so the driver uses none.
var names = cloud.NameRule{MinLen: 1, MaxLen: 64, StartLetter: true, EndAlnum: true}

var (
	uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	slug = regexp.MustCompile(`^[a-z][a-z0-9]{1,30}$`)
)

// objectID reports whether this can be the id of a volume or snapshot. Others are never sent, because they could lead to another object.
func objectID[T ~string](id T) bool { return uuid.MatchString(string(id)) }

func nodeID(droplet int) cloud.NodeID { return cloud.NodeID(strconv.Itoa(droplet)) }

// cloudName returns the volume's name for the name of a request.
func (c *Cloud) cloudName(name string) string { return names.Map(c.prefix, name) }

// snapshotNames leaves space for the seal in the names of snapshots.
var snapshotNames = cloud.NameRule{MinLen: 1, MaxLen: names.MaxLen - sealLen, StartLetter: true, EndAlnum: true}

// snapshotName returns the snapshot's name for the name of a request. The API shows no description of a snapshot, and its tags only to
// tokens with a scope, so the name itself identifies the request and the cluster.
func (c *Cloud) snapshotName(request string) string {
	return c.sealed(snapshotNames.Map(c.prefix, request), "snapshot")
}

// beginTemporary is the prefix of the names of temporary snapshots.
const beginTemporary = "clone-"

// temporaryName returns the name of the temporary snapshot of a clone. It depends on the request only, so a repeat finds the snapshot.
func (c *Cloud) temporaryName(request string) string {
	return c.sealed(beginTemporary+cloud.FullHash(request), "temporary")
}

// isTemporary reports whether a snapshot is a temporary one of this cluster.
func (c *Cloud) isTemporary(s *snapshot) bool { return s.Name == c.sealed(readableOf(s), "temporary") }

// markOf returns the Mark of a snapshot. A seal of another cluster does not name it; only the tags do.
func (c *Cloud) markOf(s *snapshot) cloud.Mark {
	switch {
	case c.isTemporary(s):
		return cloud.Mark{Driver: true, Cluster: c.cluster, Temporary: true}
	case s.Name == c.sealed(readableOf(s), "snapshot"):
		return cloud.Mark{Driver: true, Cluster: c.cluster}
	case !seal.MatchString(s.Name):
		return cloud.Mark{}
	}
	mark := cloud.Mark{Driver: true, Cluster: tags.Value(s.Tags, tags.Cluster), Temporary: strings.HasPrefix(s.Name, beginTemporary)}
	if mark.Cluster == c.cluster {
		mark.Cluster = ""
	}
	return mark
}

// sealLen is the length of the seal after the readable part: a mark and an 80-bit hash.
const sealLen = len("-h") + 16

var seal = regexp.MustCompile(`.-h[0-9a-v]{16}$`)

func readableOf(s *snapshot) string { return s.Name[:max(0, len(s.Name)-sealLen)] }

// sealed returns a name that only this cluster uses, and only for this purpose.
func (c *Cloud) sealed(readable, purpose string) string {
	hash := cloud.FullHash(c.cluster + "\x00" + purpose + "\x00" + readable)
	return readable + "-h" + hash[:sealLen-len("-h")]
}

// CheckPrefix refuses a prefix of names that the cloud would refuse.
func CheckPrefix(prefix string) error {
	return names.CheckPrefix(prefix, "names begin with a letter and have lower-case letters, digits and dashes")
}

// CheckRegion refuses what cannot be the slug of a region; "" is allowed.
func CheckRegion(region string) error {
	if region != "" && !slug.MatchString(region) {
		return fmt.Errorf("%q is not the short name of a region, such as fra1: %w", region, fault.InvalidArgument)
	}
	return nil
}

// tagRule is what the cloud allows in tags.
var tagRule = tags.Rule{
	Word: regexp.MustCompile(`^[a-zA-Z0-9_:-]+$`), Letters: "letters, digits, '_', '-' and ':'", Shortest: 1, Longest: 255,
}

// CheckTags refuses tags that the cloud would refuse.
func CheckTags(tags []cloud.Tag) error {
	_, err := tagRule.Words(tags)
	return err
}
