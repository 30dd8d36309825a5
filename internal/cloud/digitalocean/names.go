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

// names is what the cloud documents for volumes: lower-case letters, digits and dashes, a letter first,
// at most 64. What it thinks of a dash at the end is not documented, so there is none.
var names = cloud.NameRule{MinLen: 1, MaxLen: 64, StartLetter: true, EndAlnum: true}

var (
	uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	slug = regexp.MustCompile(`^[a-z][a-z0-9]{1,30}$`)
)

// objectID reports whether the cloud can have made this id of a volume or snapshot. Others never
// become part of a request, where they could lead to another object.
func objectID[T ~string](id T) bool { return uuid.MatchString(string(id)) }

func nodeID(droplet int) cloud.NodeID { return cloud.NodeID(strconv.Itoa(droplet)) }

// cloudName is the cloud's name for a request name.
func (c *Cloud) cloudName(name string) string { return names.Map(c.prefix, name) }

// snapshotNames leaves room in the names of snapshots for the seal.
var snapshotNames = cloud.NameRule{MinLen: 1, MaxLen: names.MaxLen - sealLen, StartLetter: true, EndAlnum: true}

// snapshotName is the cloud's name for the snapshot of a request. The API shows no description of a snapshot, and tags only
// to tokens with a scope, so the name itself says for which request of which cluster it was made.
func (c *Cloud) snapshotName(request string) string {
	return c.sealed(snapshotNames.Map(c.prefix, request), "snapshot")
}

// beginTemporary begins the names of the snapshots through which clones go.
const beginTemporary = "clone-"

// temporaryName is the name of the snapshot through which a clone goes. It belongs to the request, so a
// repeat finds it.
func (c *Cloud) temporaryName(request string) string {
	return c.sealed(beginTemporary+cloud.FullHash(request), "temporary")
}

// isTemporary reports whether a clone of this cluster goes through the snapshot.
func (c *Cloud) isTemporary(s *snapshot) bool { return s.Name == c.sealed(readableOf(s), "temporary") }

// markOf reads whose a snapshot is. A seal that is not this cluster's is another one's, whose name only its tags tell.
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

// sealLen is the length of what sealed puts behind the readable part: a mark, and 80 bits of hash.
const sealLen = len("-h") + 16

var seal = regexp.MustCompile(`.-h[0-9a-v]{16}$`)

func readableOf(s *snapshot) string { return s.Name[:max(0, len(s.Name)-sealLen)] }

// sealed returns a name that only this cluster gives, and only for this purpose.
func (c *Cloud) sealed(readable, purpose string) string {
	hash := cloud.FullHash(c.cluster + "\x00" + purpose + "\x00" + readable)
	return readable + "-h" + hash[:sealLen-len("-h")]
}

// maxPrefix leaves room for a hash of 80 bits and something readable.
const maxPrefix = 32

// CheckPrefix refuses a prefix of names that the cloud would not take as it is.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	if len(prefix) > maxPrefix || names.Map(prefix, "a") != prefix+"a" {
		return fmt.Errorf("%q: names begin with a letter and have lower-case letters, digits and dashes; a prefix has at most %d: %w",
			prefix, maxPrefix, fault.InvalidArgument)
	}
	return nil
}

// CheckRegion refuses what cannot be the short name of a region. None is fine.
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
func CheckTags(tags []cloud.Tag) error { return tagRule.Check(tags) }
