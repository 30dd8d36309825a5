package device

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Volumes returns how many of this machine's disks are volumes of the cloud. A disk that says nothing of itself does not
// count, and loop devices do in tests only.
func (b *ByID) Volumes(ctx context.Context) (int64, error) {
	all, err := os.ReadDir(filepath.Join(b.sysDir, "block"))
	if err != nil {
		return 0, fmt.Errorf("list the machine's disks: %w: %w", fault.Unavailable, err)
	}
	links, err := b.linkedDisks()
	if err != nil {
		return 0, err
	}
	var n int64
	for _, entry := range all {
		kernel := entry.Name()
		id, err := b.identity(ctx, kernel)
		if err != nil {
			continue
		}
		switch {
		case id.loop:
			if b.allowLoop && links[kernel] {
				n++
			}
		case b.isVolume(id):
			if mounted, err := b.mountedByMachine(kernel); err == nil && !mounted {
				n++
			}
		}
	}
	return n, nil
}

// linkedDisks returns the disks to which a link of a volume leads, by the kernel's names.
func (b *ByID) linkedDisks() (map[string]bool, error) {
	links, err := os.ReadDir(b.deviceDir)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("list the links to the disks: %w: %w", fault.Unavailable, err)
	}
	disks := map[string]bool{}
	for _, link := range links {
		if strings.HasPrefix(link.Name(), b.linkPrefix) {
			disks[b.linked(link.Name())] = true
		}
	}
	return disks, nil
}
