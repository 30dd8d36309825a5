package local

import (
	"context"
	"errors"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// Usage is the usage of one pool.
type Usage struct {
	// Pool is the pool's name.
	Pool string
	// Size, Free and Reserved are those of pool.Usage.
	Size, Free, Reserved int64
	Volumes, Snapshots   int64
	// Abnormal counts the volumes that are not healthy, by the reason of their health.
	Abnormal map[string]int64
}

// Usage returns the usage of the pools that can be read, and an error about the others.
func (l *Local) Usage(ctx context.Context) ([]Usage, error) {
	usable, missing := l.pools.Pools(ctx)
	var all []Usage
	for _, p := range usable {
		held, err := l.pools.Usage(ctx, p)
		if err != nil {
			missing = errors.Join(missing, err)
			continue
		}
		u := Usage{Pool: p.Name(), Size: held.Size, Free: held.Free, Reserved: held.Reserved, Abnormal: map[string]int64{}}
		for _, e := range held.Entries {
			switch h := health(e); {
			case e.Kind == pool.Unknown || e.ID == "":
			case e.Snapshot:
				u.Snapshots++
			default:
				u.Volumes++
				if h.Kind != cloud.Healthy {
					u.Abnormal[h.Reason]++
				}
			}
		}
		all = append(all, u)
	}
	return all, missing
}

// HealthReasons are the reasons of the health of volumes.
func HealthReasons() []string {
	var reasons []string
	for _, e := range []pool.Entry{
		{Kind: pool.NoRecord}, {Kind: pool.NoImage}, {Kind: pool.Newer}, {Kind: pool.Damaged}, {Kind: pool.Damaged, Size: 1},
	} {
		reasons = append(reasons, health(e).Reason)
	}
	return reasons
}
