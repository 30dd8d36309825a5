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
func (id ID) ImageName() string { return string(id) + ".img" }

// DefaultName is the pool of a class that names none.
const DefaultName = "default"

// snapshotPrefix distinguishes the id of a snapshot from that of a volume.
const snapshotPrefix = "snap-"

// Handle identifies a volume or a snapshot on all nodes. In CSI the id of a volume is <node>/<pool>/<id> and that of a
// snapshot <node>/<pool>/snap-<id>.
type Handle struct {
	Node, Pool string
	ID         ID
}

// String returns the id of a volume, in the form that ParseHandle reads.
func (h Handle) String() string { return h.Node + "/" + h.Pool + "/" + string(h.ID) }

// Snapshot returns the id of a snapshot, in the form that ParseSnapshotHandle reads.
func (h Handle) Snapshot() string { return h.Node + "/" + h.Pool + "/" + snapshotPrefix + string(h.ID) }

// ParseHandle accepts exactly what Handle.String returns for a valid node, pool and id.
func ParseHandle(s string) (Handle, error) { return parseHandle("volume", "", s) }

// ParseSnapshotHandle is ParseHandle for Handle.Snapshot.
func ParseSnapshotHandle(s string) (Handle, error) {
	return parseHandle("snapshot", snapshotPrefix, s)
}

func parseHandle(what, prefix, s string) (Handle, error) {
	if len(s) > maxNodeLen+1+maxPoolLen+1+len(prefix)+idLen {
		return Handle{}, fmt.Errorf("%s id of %d bytes is too long: %w", what, len(s), fault.InvalidArgument)
	}
	parts := strings.Split(s, "/")
	if len(parts) != 3 || !strings.HasPrefix(parts[2], prefix) {
		return Handle{}, fmt.Errorf("%s id %q is not <node>/<pool>/%s<%d hexadecimal digits>: %w", what, s, prefix, idLen, fault.InvalidArgument)
	}
	id, err := ParseID(strings.TrimPrefix(parts[2], prefix))
	for _, err := range []error{CheckNode(parts[0]), CheckName(parts[1]), err} {
		if err != nil {
			return Handle{}, fmt.Errorf("%s id %q: %w", what, s, err)
		}
	}
	return Handle{Node: parts[0], Pool: parts[1], ID: id}, nil
}

const maxPoolLen = 63

var poolName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// CheckName refuses what is not the name of a pool: a DNS label.
func CheckName(name string) error {
	if !poolName.MatchString(name) {
		return fmt.Errorf("the pool's name %.80q is not a DNS label (up to %d lower-case letters, digits and '-'): %w", name, maxPoolLen, fault.InvalidArgument)
	}
	return nil
}

// maxHandleLen is the maximum length of an id in CSI.
const maxHandleLen = 128

// CheckNameOn returns CheckName for the pools of a node. It also refuses a name with which ids would be longer than CSI allows: a volume
// would be created and then refused by every call.
func CheckNameOn(node string) func(name string) error {
	most := maxHandleLen - len(Handle{Node: node}.Snapshot()) - idLen
	return func(name string) error {
		if err := CheckName(name); err != nil || len(name) <= most {
			return err
		}
		return fmt.Errorf("the pool's name %q has more than the %d characters that the name of node %s leaves in an id: %w", name, most, node, fault.InvalidArgument)
	}
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
