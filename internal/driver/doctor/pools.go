package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// Pools checks the pools of a node.
func (r *Report) Pools(ctx context.Context, configs ...pool.Config) {
	for _, cfg := range configs {
		check := "pool"
		if cfg.Name != "" {
			check += " " + cfg.Name
		}
		own, err := pool.Examine(ctx, cfg)
		var below pool.Backing
		if err == nil {
			below, err = pool.BackingOf(cfg)
		}
		switch {
		case errors.Is(err, fault.NotFound):
			r.OK(check, "%v", err)
		case errors.Is(err, fs.ErrNotExist):
			r.Warn(check, fmt.Errorf("there is no folder %s yet; the program makes it at its start", cfg.Dir),
				"mount the disk of the pool there first")
		case err != nil:
			r.Wrong(check, err, remedy(cfg.Dir))
		case below.Missing > 0:
			r.Warn(check, fmt.Errorf("%d bytes of %s, the file below the pool, are not reserved: other files can take the space of volumes", below.Missing, below.File),
				fmt.Sprintf("fill them on the node: fallocate -l %d %s", below.Size, below.File))
		case !own:
			r.Warn(check, fmt.Errorf("%s is on a filesystem that holds other files too, such as the root disk of the node", cfg.Dir),
				"mount a disk of its own at "+cfg.Dir+": volumes and the node then never fill each other's space, and an xfs has snapshots in an instant")
		case below.Hidden:
			r.OK(check, "%s lies in the file %s, which cannot be seen from here; on the node `du -h` must show its full size", cfg.Dir, below.File)
		default:
			r.OK(check, "%s is for volumes alone", cfg.Dir)
		}
	}
}

func remedy(place string) string {
	if strings.HasPrefix(place, "lvm:") {
		return "connect the disks of the volume group, or correct --local-pool; vgs and lvs show what is there"
	}
	return "mount the right disk at " + place + ", or correct its owner, its permissions (chown root:root, chmod 0700) or --local-pool"
}
