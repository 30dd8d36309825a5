package linode

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// zones are the request's that can serve it. Where the cloud does not say what its regions can do, it is left
// to its answer.
func (c *Cloud) zones(ctx context.Context, req cloud.CreateVolumeRequest, o order) ([]string, error) {
	wanted := req.Zones
	if len(wanted) == 0 {
		wanted = []string{c.region}
	}
	wanted = slices.DeleteFunc(slices.Clone(wanted), func(zone string) bool { return !slug.MatchString(zone) })
	places, err := c.atlas(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return wanted, nil
	}
	lacks := "Block Storage"
	able := slices.DeleteFunc(slices.Clone(wanted), func(zone string) bool {
		p := places[zone]
		if p.volumes && o.encryption == encrypted && !p.encryption {
			lacks = hasEncryption
		}
		return !p.volumes || o.encryption == encrypted && !p.encryption
	})
	if len(able) == 0 {
		return nil, fmt.Errorf("none of the regions %q has the capability %q: %w", wanted, lacks, fault.Exhausted)
	}
	return able, nil
}

// atlasAge is for how long what the regions can do is believed. What they cannot do is asked for again, but
// not with every create.
const atlasAge = time.Hour

// atlas returns what the regions can do.
func (c *Cloud) atlas(ctx context.Context) (map[string]place, error) {
	if a := c.places.Load(); a != nil && time.Since(a.read) < atlasAge {
		return a.places, nil
	}
	places, err := c.regions.Get(ctx, struct{}{})
	if err != nil {
		return nil, err
	}
	c.places.Store(&atlas{places: places, read: time.Now()})
	return places, nil
}

// atlas is what the regions can do, as it was read at a moment.
type atlas struct {
	places map[string]place
	read   time.Time
}
