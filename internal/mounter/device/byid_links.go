package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// partition ends the link of a part of a disk.
var partition = regexp.MustCompile(`-part[0-9]+$`)

// CheckLinks returns an error for each link of a volume that leads to no disk, or to a disk of another name, and the number
// of links that are right. fs.ErrNotExist without a device directory, which udev makes with the first link.
func (b *ByID) CheckLinks(ctx context.Context) (right int, err error) {
	links, err := os.ReadDir(b.deviceDir)
	if err != nil {
		return 0, fmt.Errorf("list the links to the disks: %w: %w", fault.Unavailable, err)
	}
	var stale []error
	for _, link := range links {
		name := link.Name()
		if !strings.HasPrefix(name, b.linkPrefix) || partition.MatchString(name) {
			continue
		}
		kernel := b.linked(name)
		id, err := b.identity(ctx, kernel)
		switch {
		case kernel == "" || !b.exists(kernel):
			stale = append(stale, fmt.Errorf("the link %s/%s leads to %q, which is no disk: %w", b.deviceDir, name, kernel, fault.DeviceIdentity))
		case err != nil:
			stale = append(stale, fmt.Errorf("the link %s/%s leads to %s: %w: %w", b.deviceDir, name, kernel, fault.DeviceIdentity, err))
		case !slices.ContainsFunc(id.links, func(own string) bool { return strings.HasPrefix(name, own) }):
			stale = append(stale, fmt.Errorf("the link %s/%s leads to %s, which is another disk (its identity is %q): %w",
				b.deviceDir, name, kernel, append(id.serials, id.links...), fault.DeviceIdentity))
		default:
			right++
		}
	}
	return right, errors.Join(stale...)
}

// CheckSys returns an error if the settings of loop devices below a directory of sysfs cannot be written.
func CheckSys(dir string) error { return (&Loop{sysDir: dir}).checkSys() }
