package metadata

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// digitalOceanBase is the address that every droplet reaches its metadata service at.
const digitalOceanBase = "http://169.254.169.254"

var (
	dropletID  = regexp.MustCompile(`^[1-9][0-9]{0,18}$`)
	regionSlug = regexp.MustCompile(`^[a-z][a-z0-9]{0,30}$`)
)

// DigitalOcean asks for the droplet's id and region. The service says nothing about volumes; the number
// that a droplet can hold is the same for all.
func DigitalOcean(ctx context.Context, base string) (Machine, error) {
	if base == "" {
		base = digitalOceanBase
	}
	base = strings.TrimRight(base, "/") + "/metadata/v1/"
	return untilAnswered(ctx, func(ctx context.Context) (Machine, error) {
		id, err := text(ctx, base+"id")
		if err != nil {
			return Machine{}, err
		}
		region, err := text(ctx, base+"region")
		if err != nil {
			return Machine{}, err
		}
		if !dropletID.MatchString(id) || !regionSlug.MatchString(region) {
			return Machine{}, fmt.Errorf("the metadata service at %s says that this is droplet %.40q in region %.40q; is this a droplet?: %w: %w",
				base, id, region, fault.Unavailable, errFinal)
		}
		return Machine{ID: id, Zone: region}, nil
	})
}
