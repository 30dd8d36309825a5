package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// digitalOceanBase is the base URL of the metadata service of every droplet.
const digitalOceanBase = Usual

var (
	number     = regexp.MustCompile(`^[1-9][0-9]{0,18}$`)
	regionSlug = regexp.MustCompile(`^[a-z][a-z0-9]{0,30}$`)
)

// DigitalOcean returns the droplet's id and region. The service does not report the attach limit, which is the same for all
// droplets.
func DigitalOcean(ctx context.Context, base string) (Info, error) {
	if base == "" {
		base = digitalOceanBase
	}
	base = strings.TrimRight(base, "/") + "/metadata/v1/"
	return untilAnswered(ctx, func(ctx context.Context) (Info, error) {
		id, err := text(ctx, base+"id")
		if err != nil {
			return Info{}, err
		}
		region, err := text(ctx, base+"region")
		if err != nil {
			return Info{}, err
		}
		if !number.MatchString(id) || !regionSlug.MatchString(region) {
			return Info{}, fmt.Errorf("the metadata service at %s says that this is droplet %.40q in region %.40q; is this a droplet?: %w: %w",
				base, id, region, fault.Unavailable, errFinal)
		}
		return Info{ID: id, Zone: region}, nil
	})
}

// DigitalOceanItself reads the droplet's id from the SMBIOS, below root, as cloud-init does (read_sysinfo in
// cloudinit/sources/helpers/digitalocean.py). The SMBIOS does not have the region.
func DigitalOceanItself(root string) (Info, error) {
	dmi := filepath.Join(root, "sys/devices/virtual/dmi/id")
	vendor, err := os.ReadFile(filepath.Join(dmi, "sys_vendor"))
	serial, serialErr := os.ReadFile(filepath.Join(dmi, "product_serial"))
	if err := errors.Join(err, serialErr); err != nil {
		return Info{}, fmt.Errorf("read the droplet's id: %w: %w", fault.Unavailable, err)
	}
	maker, id := strings.TrimSpace(string(vendor)), strings.TrimSpace(string(serial))
	if maker != "DigitalOcean" || !number.MatchString(id) {
		return Info{}, fmt.Errorf("the SMBIOS has the manufacturer %.40q and the serial number %.40q; is this a droplet?: %w", maker, id, fault.Unavailable)
	}
	return Info{ID: id}, nil
}
