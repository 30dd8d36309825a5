package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Pools checks the pools of a node.
func (r *Report) Pools(ctx context.Context, configs ...pool.Config) {
	for _, cfg := range configs {
		check := "pool"
		if cfg.Name != "" {
			check += " " + cfg.Name
		}
		own, err := pool.Examine(ctx, cfg)
		switch {
		case errors.Is(err, fault.NotFound):
			r.OK(check, "%v", err)
		case errors.Is(err, fs.ErrNotExist):
			r.Warn(check, fmt.Errorf("there is no folder %s yet; the program makes it at its start", cfg.Dir),
				"mount the disk of the pool there first")
		case err != nil:
			r.Wrong(check, err, remedy(cfg.Dir))
		case !own:
			r.Warn(check, fmt.Errorf("%s is on a filesystem that holds other files too, such as the root disk of the node", cfg.Dir),
				"mount a disk of its own at "+cfg.Dir+": volumes and the node then never fill each other's space, and an xfs has snapshots in an instant")
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
