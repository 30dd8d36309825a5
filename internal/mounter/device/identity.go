package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// virtioSerial is the length to which virtio-blk truncates a serial (VIRTIO_BLK_ID_BYTES).
const virtioSerial = 20

// errUnknown: the identity of a disk is missing or cannot be read.
var errUnknown = errors.New("the disk's own identity cannot be read")

// identity is the identity of a disk in sysfs.
type identity struct {
	// serials are compared with a spec's serial.
	serials []string
	// links are the names that udev gives to a disk of this identity.
	links []string
	// cut: serials and names are truncated to 20 bytes.
	cut bool
	// loop: this is a loop device; its only identity is the name of its file.
	loop bool
}

// readIdentity reads the identity of the block device sys/block/<kernel>.
func readIdentity(sys, kernel string) (identity, error) {
	dir := filepath.Join(sys, "block", kernel)
	if backing, err := readText(filepath.Join(dir, "loop", "backing_file")); err == nil {
		base := filepath.Base(backing)
		return identity{loop: true, links: []string{base, strings.TrimSuffix(base, ".img")}}, nil
	}
	bus, err := os.Readlink(filepath.Join(dir, "device", "subsystem"))
	if err != nil {
		return identity{}, fmt.Errorf("%s: %w: %w", kernel, errUnknown, err)
	}
	switch filepath.Base(bus) {
	case "virtio":
		return virtioIdentity(dir)
	case "scsi":
		return scsiIdentity(dir)
	case "nvme", "nvme-subsystem":
		return nvmeIdentity(dir)
	}
	return identity{}, fmt.Errorf("%s: %w: bus %s", kernel, errUnknown, filepath.Base(bus))
}

func virtioIdentity(dir string) (identity, error) {
	serial, err := readText(filepath.Join(dir, "serial"))
	if err != nil {
		return identity{}, fmt.Errorf("%w: %w", errUnknown, err)
	}
	return identity{serials: []string{serial}, links: []string{"virtio-" + serial}, cut: true}, nil
}

// scsiIdentity reads page 0x83 as udev's scsi_id does: a vendor-specific name becomes the link
// scsi-0<vendor>_<model>_<name>, a T10 one scsi-1<vendor>_<name>.
func scsiIdentity(dir string) (identity, error) {
	page, err := os.ReadFile(filepath.Join(dir, "device", "vpd_pg83"))
	if err != nil {
		return identity{}, fmt.Errorf("%w: %w", errUnknown, err)
	}
	vendorSpecific, t10, err := vpdNames(page)
	if err != nil {
		return identity{}, fmt.Errorf("%w: %w", errUnknown, err)
	}
	id := identity{serials: slices.Concat(vendorSpecific, t10)}
	if len(id.serials) == 0 {
		return identity{}, fmt.Errorf("%w: page 0x83 holds no name", errUnknown)
	}
	vendor, err := readText(filepath.Join(dir, "device", "vendor"))
	if err != nil {
		return identity{}, fmt.Errorf("%w: %w", errUnknown, err)
	}
	model, err := readText(filepath.Join(dir, "device", "model"))
	if err != nil {
		return identity{}, fmt.Errorf("%w: %w", errUnknown, err)
	}
	for _, name := range vendorSpecific {
		id.links = append(id.links, "scsi-0"+underscores(vendor+" "+model+" "+name))
	}
	for _, name := range t10 {
		id.links = append(id.links, "scsi-1"+underscores(vendor+" "+name))
	}
	return id, nil
}

func nvmeIdentity(dir string) (identity, error) {
	serial, err := readText(filepath.Join(dir, "device", "serial"))
	if err != nil {
		return identity{}, fmt.Errorf("%w: %w", errUnknown, err)
	}
	id := identity{serials: []string{serial}}
	if model, err := readText(filepath.Join(dir, "device", "model")); err == nil {
		id.links = []string{"nvme-" + underscores(model+" "+serial)}
	}
	return id, nil
}

// underscores writes one underscore for each run of white space, as udev does in link names.
func underscores(s string) string { return strings.Join(strings.Fields(s), "_") }

// readText reads a sysfs attribute without its padding. An empty one is an error.
func readText(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	text := strings.Trim(string(b), " \t\n\x00")
	if text == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return text, nil
}

// proves reports whether this is the identity of the spec. The serial decides; without one in the spec the link's name decides,
// which udev derives from the same identity.
func (id identity) proves(spec Spec) bool {
	want, have := spec.Serial, id.serials
	if want == "" || id.loop {
		want, have = spec.Name, id.links
	}
	if want == "" {
		return false
	}
	if id.cut {
		want = cutSerial(want)
	}
	return slices.Contains(have, want)
}

// linkBegins reports whether one of the disk's links begins with this.
func (id identity) linkBegins(prefix string) bool {
	return slices.ContainsFunc(id.links, func(link string) bool { return strings.HasPrefix(link, prefix) })
}

// cutSerial truncates a spec's serial as a virtio disk does. sysfs drops white space at the new end.
func cutSerial(want string) string {
	serial, isLink := strings.CutPrefix(want, "virtio-")
	serial = strings.TrimRight(serial[:min(len(serial), virtioSerial)], " ")
	if isLink {
		return "virtio-" + serial
	}
	return serial
}

// checkName refuses a link name that leads out of its directory.
func checkName(name string) error {
	if name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || len(name) > 255 {
		return fmt.Errorf("the device name of the request is not the name of a link: %w", fault.InvalidArgument)
	}
	return nil
}

var errBadVPD = errors.New("page 0x83 cannot be read")

// vpdNames returns the names that a SCSI disk gives itself in VPD page 0x83, as SPC-4 section 7.8.6
// lays it out: the vendor-specific ones, which is where the clouds put a volume's name, and the
// T10 ones without their vendor. A truncated or inconsistent page is an error.
func vpdNames(page []byte) (vendorSpecific, t10 []string, err error) {
	if len(page) < 4 || page[1] != 0x83 {
		return nil, nil, errBadVPD
	}
	end := 4 + int(page[2])<<8 + int(page[3])
	if end > len(page) {
		return nil, nil, errBadVPD
	}
	const (
		header      = 4
		ascii, utf8 = 2, 3
		vendorBytes = 8
	)
	for rest := page[4:end]; len(rest) > 0; {
		if len(rest) < header || len(rest) < header+int(rest[3]) {
			return nil, nil, errBadVPD
		}
		id := rest[header : header+int(rest[3])]
		codeSet, association, kind := rest[0]&0xf, rest[1]>>4&3, rest[1]&0xf
		rest = rest[header+len(id):]
		// Association 0 is the disk itself; the others name the port or the machine behind it.
		if association != 0 || codeSet != ascii && codeSet != utf8 {
			continue
		}
		switch {
		case kind == 0:
			vendorSpecific = appendName(vendorSpecific, id)
		case kind == 1 && len(id) > vendorBytes:
			t10 = appendName(t10, id[vendorBytes:])
		}
	}
	return vendorSpecific, t10, nil
}

// appendName adds a name without its padding, if anything is left of it.
func appendName(names []string, id []byte) []string {
	if name := strings.Trim(string(id), " \x00"); name != "" {
		names = append(names, name)
	}
	return names
}
