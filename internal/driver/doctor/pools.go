package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/files"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/pools"
)

// Pools checks the pools of a node. It need not have all of them.
func (r *Report) Pools(ctx context.Context, configs ...pool.Config) {
	errs, has := make([]error, len(configs)), false
	for i, cfg := range configs {
		errs[i] = pools.Examine(ctx, cfg)
		has = has || !errors.Is(errs[i], pool.ErrNotHere)
	}
	for i, cfg := range configs {
		check := "pool"
		if cfg.Name != "" {
			check += " " + cfg.Name
		}
		err := errs[i]
		var below files.Backing
		if err == nil {
			below, err = files.BackingOf(cfg)
		}
		switch {
		case has && errors.Is(err, pool.ErrNotHere):
			r.Warn(check, err, remedy(cfg.Dir)+"; a node without this pool needs nothing")
		case err != nil:
			r.Wrong(check, err, remedy(cfg.Dir))
		case below.Missing > 0:
			r.Warn(check, fmt.Errorf("%d bytes of %s, the file below the pool, are not reserved: other files can take the space of volumes", below.Missing, below.File),
				fmt.Sprintf("fill them on the node: fallocate -l %d %s", below.Size, below.File))
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
