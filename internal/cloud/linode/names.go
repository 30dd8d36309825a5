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

// labels is what the cloud documents for the labels of volumes: letters, digits, dashes and underscores, a
// letter first, no two dashes or underscores in a row, at most 32. Capitals and underscores are left out:
// whether two labels that differ in nothing else are two is not documented, and neither is a dash at the end.
var labels = cloud.NameRule{MinLen: 2, MaxLen: 32, StartLetter: true, EndAlnum: true, NoDoubles: true}

// devicePrefix begins the link that udev makes for a volume on its Linode; the label follows.
var devicePrefix = profile.Linode.LinkPrefix

var (
	slug = regexp.MustCompile(`^[a-z][a-z0-9-]{1,30}$`)
	// handle is a volume's id, alone or, as the vendor's driver writes it, with the label that the volume
	// had then.
	handle = regexp.MustCompile(`^([1-9][0-9]{0,17})(?:-[0-9A-Za-z_-]{0,32})?$`)
)

// volumeNumber returns the number of a volume, or false for an id that neither driver can have made. Such an id never
// becomes part of a request, where it could lead to another object.
func volumeNumber(id cloud.VolumeID) (int, bool) {
	parts := handle.FindStringSubmatch(string(id))
	if parts == nil {
		return 0, false
	}
	n, err := strconv.Atoi(parts[1])
	return n, err == nil
}

func volumeID(n int) cloud.VolumeID { return cloud.VolumeID(strconv.Itoa(n)) }

func nodeID(linode int) cloud.NodeID { return cloud.NodeID(strconv.Itoa(linode)) }

// labelOf is the cloud's name for a request name.
func (c *Cloud) labelOf(name string) string { return labels.Map(c.prefix, name) }

// shortened reports whether the label of a request name is not the name itself.
func (c *Cloud) shortened(name string) bool { return c.labelOf(name) != c.prefix+name }

// copying begins the label of every copy of this cluster that is not finished. No request is mapped to it: a
// name that seems to end in a hash gets another one.
func (c *Cloud) copying() string { return "clone-" + cloud.FullHash(c.cluster)[:8] + "-h" }

// temporaryLabel is the label of a copy that is not finished. It belongs to the request and its source, with
// 80 bits, so it is the only evidence of whose copy it is: the cloud makes copies without tags.
func (c *Cloud) temporaryLabel(request string, source int) string {
	return c.copying() + cloud.FullHash(request + "\x00" + strconv.Itoa(source))[:16]
}

// copyLabel matches the label of a copy that is not finished, of whatever cluster.
var copyLabel = regexp.MustCompile(`^clone-[0-9a-v]{8}-h[0-9a-v]{16}$`)

// markOf reads whose a volume is: from its tags, or, as a copy that is not finished has none, from its label. The cloud may
// keep the capitals that a tag was first written with, so they do not count.
func (c *Cloud) markOf(v *volume) cloud.Mark {
	mark := tags.MarkOf(v.Tags)
	ours := strings.EqualFold(mark.Cluster, c.cluster)
	if !mark.Driver && copyLabel.MatchString(v.Label) {
		mark = cloud.Mark{Driver: true, Temporary: true}
		ours = strings.HasPrefix(v.Label, c.copying())
	}
	if ours {
		mark.Cluster = c.cluster
	}
	return mark
}

// maxPrefix leaves room for the 20 characters that the provisioner is set to use.
const maxPrefix = 12

// CheckPrefix refuses a prefix of labels that the cloud would not take as it is.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	if len(prefix) > maxPrefix || labels.Map(prefix, "a") != prefix+"a" {
		return fmt.Errorf("%q: labels begin with a letter and have lower-case letters, digits and single dashes; a prefix has at most %d: %w",
			prefix, maxPrefix, fault.InvalidArgument)
	}
	return nil
}

// CheckRegion refuses what cannot be the id of a region. None is fine.
func CheckRegion(region string) error {
	if region != "" && !slug.MatchString(region) {
		return fmt.Errorf("%q is not the id of a region, such as us-ord: %w", region, fault.InvalidArgument)
	}
	return nil
}

// CheckTags refuses tags that the cloud would refuse.
func CheckTags(tags []cloud.Tag) error { return tagRule.Check(tags) }
