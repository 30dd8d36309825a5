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

// Foreign counts the machine's disks that are no volumes of the cloud, such as those that it boots and swaps
// from: they take places of a machine too, on the bus that the cloud's disks are on. It is the same whatever
// volumes are attached.
func (b *ByID) Foreign() (int64, error) {
	all, err := os.ReadDir(filepath.Join(b.sysDir, "block"))
	if err != nil {
		return 0, fmt.Errorf("list the machine's disks: %w: %w", fault.Unavailable, err)
	}
	var n int64
	for _, entry := range all {
		foreign, err := b.foreign(entry.Name())
		if err != nil {
			return 0, fmt.Errorf("look at disk %s: %w: %w", entry.Name(), fault.Unavailable, err)
		}
		if foreign {
			n++
		}
	}
	return n, nil
}

// diskType is what SCSI calls a disk; others are drives for media and the like.
const diskType = "0"

func (b *ByID) foreign(kernel string) (bool, error) {
	dir := filepath.Join(b.sysDir, "block", kernel)
	bus, err := os.Readlink(filepath.Join(dir, "device", "subsystem"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // no hardware: a loop device, or one of memory; or it has gone
	}
	if err != nil {
		return false, err
	}
	if wanted, _, told := strings.Cut(b.linkPrefix, "-"); told && filepath.Base(bus) != wanted {
		return false, nil // the cloud's disks have places on another bus
	}
	switch filepath.Base(bus) {
	case "scsi":
		if kind, err := readText(filepath.Join(dir, "device", "type")); err == nil && kind != diskType {
			return false, nil
		}
	case "virtio", "nvme", "nvme-subsystem":
	default:
		return false, nil
	}
	if b.linkPrefix == "" {
		return true, nil
	}
	// Who makes it is enough to know the cloud's volumes, and is there before the rest of an identity is.
	vendor, vendorErr := readText(filepath.Join(dir, "device", "vendor"))
	model, modelErr := readText(filepath.Join(dir, "device", "model"))
	if vendorErr == nil && modelErr == nil && strings.HasPrefix("scsi-0"+underscores(vendor+" "+model)+"_", b.linkPrefix) {
		return false, nil
	}
	id, err := readIdentity(b.sysDir, kernel)
	switch {
	case err != nil || !id.linkBegins(b.linkPrefix):
		return true, nil
	case b.mayBeVolume == nil:
		return false, nil
	case !slices.ContainsFunc(id.serials, b.mayBeVolume):
		return true, nil
	}
	return b.mountedByMachine(kernel)
}

// mountedByMachine reports whether the machine uses a disk, or a part of it, for something else than volumes. In
// a container that shows too: files such as /etc/hosts come from the disk that the machine runs on.
func (b *ByID) mountedByMachine(kernel string) (bool, error) {
	numbers := map[string]bool{}
	parts, err := filepath.Glob(filepath.Join(b.sysDir, "block", kernel, kernel+"*"))
	if err != nil {
		return false, err
	}
	sources := map[string]bool{"/dev/" + kernel: true}
	for _, dir := range append(parts, filepath.Join(b.sysDir, "block", kernel)) {
		sources["/dev/"+filepath.Base(dir)] = true // some filesystems have numbers of their own
		if number, err := readText(filepath.Join(dir, "dev")); err == nil {
			numbers[number] = true
		}
	}
	mounts, err := os.ReadFile(b.mounts)
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		mark := slices.Index(fields, "-")
		if len(fields) < 5 || mark < 0 || mark+2 >= len(fields) || !numbers[fields[2]] && !sources[fields[mark+2]] {
			continue
		}
		if target := fields[4]; !strings.Contains(target, "/plugins/") && !strings.Contains(target, "/pods/") {
			return true, nil
		}
	}
	return false, nil
}
