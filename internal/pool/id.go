package pool

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ID identifies a volume or a snapshot of a pool: 32 lower-case hexadecimal digits. It is random, so a late delete of
// an older volume never removes a newer one of the same name. A value that ParseID or NewID returned
// is safe as part of a file name; no other value may reach a path.
type ID string

const idLen = 32

// NewID returns a new random id.
func NewID() ID {
	var b [idLen / 2]byte
	// crypto/rand.Read never fails; it ends the program when the system has no randomness.
	_, _ = rand.Read(b[:])
	return ID(hex.EncodeToString(b[:]))
}

// ParseID accepts exactly what NewID returns.
func ParseID(s string) (ID, error) {
	if len(s) != idLen {
		return "", fmt.Errorf("volume id of %d bytes, want %d hexadecimal digits: %w", len(s), idLen, fault.InvalidArgument)
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", fmt.Errorf("volume id %q is not %d lower-case hexadecimal digits: %w", s, idLen, fault.InvalidArgument)
		}
	}
	return ID(s), nil
}

// ImageName returns the base name of the file that holds the volume's bytes.
func (id ID) ImageName() string { return string(id) + imageExt }

// Handle is a volume's id as CSI callers see it: <node>/<id>.
type Handle struct {
	Node string
	ID   ID
}

// String returns the id in the form that ParseHandle reads.
func (h Handle) String() string { return h.Node + "/" + string(h.ID) }

// ParseHandle accepts exactly what Handle.String returns for a valid node and id.
func ParseHandle(s string) (Handle, error) {
	if len(s) > maxNodeLen+1+idLen {
		return Handle{}, fmt.Errorf("volume id of %d bytes is too long: %w", len(s), fault.InvalidArgument)
	}
	node, rest, ok := strings.Cut(s, "/")
	if !ok {
		return Handle{}, fmt.Errorf("volume id %q is not <node>/<%d hexadecimal digits>: %w", s, idLen, fault.InvalidArgument)
	}
	if err := CheckNode(node); err != nil {
		return Handle{}, fmt.Errorf("volume id %q: %w", s, err)
	}
	id, err := ParseID(rest)
	if err != nil {
		return Handle{}, err
	}
	return Handle{Node: node, ID: id}, nil
}

// maxNodeLen is what a Kubernetes label holds: the node's name is the value of the topology label.
const maxNodeLen = 63

var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// CheckNode refuses what is not the name of a node: a DNS-1123 subdomain of at most 63 characters.
func CheckNode(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the node has no name: %w", fault.InvalidArgument)
	case len(name) > maxNodeLen:
		return fmt.Errorf("node name of %d bytes is longer than %d, the longest value of a topology label: %w", len(name), maxNodeLen, fault.InvalidArgument)
	case !nodeName.MatchString(name):
		return fmt.Errorf("node name %q is not a DNS subdomain (lower-case letters, digits, '-' and '.'): %w", name, fault.InvalidArgument)
	}
	return nil
}
