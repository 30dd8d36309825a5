package linode

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
	if len(wanted) == 0 {
		return nil, fmt.Errorf("none of %q is the id of a region: %w", req.Zones, fault.Exhausted)
	}
	places, err := c.regions.get(ctx, c.readRegions)
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

// atlasAge is for how long what the regions can do is believed.
const atlasAge = time.Hour

// atlas is what the regions can do, as it was read at a moment.
type atlas struct {
	mu     sync.Mutex
	places map[string]place
	read   time.Time
	// reading is closed when the read under way has ended; nil: there is none.
	reading chan struct{}
}

// get returns what the regions can do. Where it is not known, one caller reads it for all.
func (a *atlas) get(ctx context.Context, read func(context.Context) (map[string]place, error)) (map[string]place, error) {
	for {
		a.mu.Lock()
		if a.places != nil && time.Since(a.read) < atlasAge {
			defer a.mu.Unlock()
			return a.places, nil
		}
		under := a.reading
		if under == nil {
			a.reading = make(chan struct{})
			a.mu.Unlock()
			return a.fill(ctx, read)
		}
		a.mu.Unlock()
		select {
		case <-under:
		case <-ctx.Done():
			return nil, fmt.Errorf("look which regions have volumes: %w: %w", fault.Unavailable, ctx.Err())
		}
	}
}

func (a *atlas) fill(ctx context.Context, read func(context.Context) (map[string]place, error)) (map[string]place, error) {
	places, err := read(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.places, a.read = places, time.Now()
	}
	close(a.reading)
	a.reading = nil
	return places, err
}
