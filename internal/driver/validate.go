package driver

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The limits of the CSI specification.
const (
	stringLimit = 128
	nodeIDLimit = 256
	mapLimit    = 4 << 10
	// pathLimit is the kernel's. The specification requires that at least 128 bytes are accepted.
	pathLimit = 4095
)

// CheckVolumeID accepts a volume id that some cloud could have assigned.
func CheckVolumeID(field, id string) error { return checkID(field, id, stringLimit) }

// CheckSnapshotID accepts a snapshot id that some cloud could have assigned.
func CheckSnapshotID(field, id string) error { return checkID(field, id, stringLimit) }

// CheckNodeID accepts a node id that some cloud could have assigned.
func CheckNodeID(field, id string) error { return checkID(field, id, nodeIDLimit) }

// checkID refuses characters that no cloud uses in an id, and ids that could change the meaning of a URL or a path that contains
// them. The backend, which knows its own ids, checks the rest. The message does not contain the id, which may be long or
// misleading.
func checkID(field, id string, limit int) error {
	switch {
	case id == "":
		return fmt.Errorf("%s: missing: %w", field, fault.InvalidArgument)
	case len(id) > limit:
		return fmt.Errorf("%s: longer than %d bytes: %w", field, limit, fault.InvalidArgument)
	case strings.ContainsFunc(id, func(r rune) bool { return !idRune(r) }):
		return fmt.Errorf("%s: has a character that no id has: %w", field, fault.InvalidArgument)
	}
	for part := range strings.SplitSeq(id, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("%s: reads like a path: %w", field, fault.InvalidArgument)
		}
	}
	return nil
}

func idRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.:/", r)
}

// CheckName accepts the name of a volume or snapshot to create: 1 to 128 bytes of text without control characters other than tabs
// and line ends.
func CheckName(field, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s: missing: %w", field, fault.InvalidArgument)
	case len(name) > stringLimit:
		return fmt.Errorf("%s: longer than %d bytes: %w", field, stringLimit, fault.InvalidArgument)
	case !utf8.ValidString(name):
		return fmt.Errorf("%s: not UTF-8: %w", field, fault.InvalidArgument)
	case strings.ContainsFunc(name, bannedRune):
		return fmt.Errorf("%s: has a control character: %w", field, fault.InvalidArgument)
	}
	return nil
}

func bannedRune(r rune) bool {
	return r < ' ' && r != '\t' && r != '\n' && r != '\r' || 0x7f <= r && r <= 0x9f
}

// CheckPath accepts an absolute path in its shortest form, so without "..".
func CheckPath(field, path string) error {
	switch {
	case path == "":
		return fmt.Errorf("%s: missing: %w", field, fault.InvalidArgument)
	case len(path) > pathLimit:
		return fmt.Errorf("%s: longer than %d bytes: %w", field, pathLimit, fault.InvalidArgument)
	case !filepath.IsAbs(path):
		return fmt.Errorf("%s: not an absolute path: %w", field, fault.InvalidArgument)
	case filepath.Clean(path) != path || strings.ContainsRune(path, 0):
		return fmt.Errorf("%s: not a clean path (no \"..\", \"//\" or trailing slash): %w", field, fault.InvalidArgument)
	case path == "/":
		return fmt.Errorf("%s: is the root folder: %w", field, fault.InvalidArgument)
	}
	return nil
}

// CheckSegment accepts the value of a topology segment.
func CheckSegment(field, value string) error {
	if len(value) > segmentLimit || !segmentText.MatchString(value) {
		return fmt.Errorf("%s: not a topology value (at most %d letters, digits, dashes, dots and underscores): %w",
			field, segmentLimit, fault.InvalidArgument)
	}
	return nil
}

// CheckMap accepts a map within CSI's limit of its size.
func CheckMap(field string, m map[string]string) error {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
	}
	if size > mapLimit {
		return fmt.Errorf("%s: larger than %d bytes: %w", field, mapLimit, fault.InvalidArgument)
	}
	return nil
}

const supportedModes = "SINGLE_NODE_WRITER, SINGLE_NODE_READER_ONLY, SINGLE_NODE_SINGLE_WRITER, SINGLE_NODE_MULTI_WRITER"

// CheckCapability accepts a capability that this driver supports: one node at a time, as a raw block device or with ext4 or xfs.
func CheckCapability(field string, c *csi.VolumeCapability) error {
	if c == nil {
		return fmt.Errorf("%s: missing: %w", field, fault.InvalidArgument)
	}
	switch c.GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
	case csi.VolumeCapability_AccessMode_UNKNOWN:
		return fmt.Errorf("%s: access_mode: missing: %w", field, fault.InvalidArgument)
	default:
		return fmt.Errorf("%s: access_mode: a volume is on one node at a time; supported are %s: %w",
			field, supportedModes, fault.InvalidArgument)
	}
	switch {
	case c.GetBlock() != nil:
		return nil
	case c.GetMount() != nil:
		return checkMount(field+": mount", c.GetMount())
	default:
		return fmt.Errorf("%s: access_type: neither block nor mount: %w", field, fault.InvalidArgument)
	}
}

// CheckFilesystem accepts the filesystems that a volume can have.
func CheckFilesystem(name string) error {
	switch name {
	case "ext4", "xfs":
		return nil
	case "btrfs":
		return fmt.Errorf("btrfs is not supported, because one node cannot mount two disks with one btrfs id, such as a volume and its clone; "+
			"supported are ext4 and xfs: %w", fault.InvalidArgument)
	}
	return fmt.Errorf("supported are ext4 and xfs: %w", fault.InvalidArgument)
}

func checkMount(field string, m *csi.VolumeCapability_MountVolume) error {
	if m.GetFsType() != "" {
		if err := CheckFilesystem(m.GetFsType()); err != nil {
			return fmt.Errorf("%s: fs_type: %w", field, err)
		}
	}
	if m.GetVolumeMountGroup() != "" {
		return fmt.Errorf("%s: volume_mount_group: not supported: %w", field, fault.InvalidArgument)
	}
	size := 0
	for _, flag := range m.GetMountFlags() {
		size += len(flag)
		// The flags may have secrets, so the message has none of them.
		if flag == "" || strings.ContainsFunc(flag, bannedRune) {
			return fmt.Errorf("%s: mount_flags: an empty flag, or a control character: %w", field, fault.InvalidArgument)
		}
	}
	if size > mapLimit {
		return fmt.Errorf("%s: mount_flags: larger than %d bytes: %w", field, mapLimit, fault.InvalidArgument)
	}
	return nil
}

// CheckCapabilities accepts a list of at least one capability, if all are supported.
func CheckCapabilities(field string, list []*csi.VolumeCapability) error {
	if len(list) == 0 {
		return fmt.Errorf("%s: missing: %w", field, fault.InvalidArgument)
	}
	for i, c := range list {
		if err := CheckCapability(fmt.Sprintf("%s[%d]", field, i), c); err != nil {
			return err
		}
	}
	return nil
}

// mkfsOptionsLimit keeps the volume context below CSI's 4 KiB in any case.
const mkfsOptionsLimit = 1024

// ParseMkfsOptions splits the class parameter mkfsOptions at its spaces. The words are not passed through a shell, so quotes have
// no meaning and are refused. A word that could name another device is refused too: mkfs would format that device, or put a journal
// on it.
func ParseMkfsOptions(s string) ([]string, error) {
	if len(s) > mkfsOptionsLimit {
		return nil, fmt.Errorf("mkfs options longer than %d bytes: %w", mkfsOptionsLimit, fault.InvalidArgument)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, fmt.Errorf("mkfs options with a character that is not printable ASCII: %w", fault.InvalidArgument)
	}
	words := strings.Fields(s)
	if len(words) == 0 {
		return nil, nil
	}
	for i, word := range words {
		switch {
		case strings.ContainsAny(word, "'\"`\\$;|&<>"):
			return nil, fmt.Errorf("mkfs option %d has a quote or shell character, and there is no shell: %w", i+1, fault.InvalidArgument)
		case strings.ContainsRune(word, '/'), strings.Contains(word, "UUID="), strings.Contains(word, "LABEL="):
			return nil, fmt.Errorf("mkfs option %d names a file or a device: %w", i+1, fault.InvalidArgument)
		case i == 0 && !strings.HasPrefix(word, "-"):
			return nil, fmt.Errorf("mkfs options do not begin with an option: %w", fault.InvalidArgument)
		case word == "-" || word == "--":
			return nil, fmt.Errorf("mkfs option %d is a bare dash: %w", i+1, fault.InvalidArgument)
		}
	}
	return words, nil
}

// masked is what a Secret shows.
const masked = "***"

// Secret is a string that no formatting verb, encoder or logger shows.
type Secret struct{ value string }

// NewSecret hides a value.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal returns the value, for the one place that passes it on.
func (s Secret) Reveal() string { return s.value }

// String returns "***".
func (Secret) String() string { return masked }

// GoString returns "***".
func (Secret) GoString() string { return masked }

// Format writes "***" for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(masked)) }

// MarshalText returns "***", for JSON too.
func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }
