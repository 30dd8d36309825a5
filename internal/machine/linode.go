package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// linodeBase is the address that every Linode reaches its metadata service at.
	linodeBase = Usual
	// linodeToken is for how many seconds a token is asked for; it is used at once.
	linodeToken = "60"
	// longestInstance bounds the description of a Linode, which has all its tags.
	longestInstance = 64 << 10
)

var linodeRegion = regexp.MustCompile(`^[a-z][a-z0-9-]{1,30}$`)

// linodeMaxDisks is how many disks and volumes a Linode with so many MB of memory can have: one for each GiB, at
// least 8 and at most 64.
func linodeMaxDisks(memory int64) int64 { return min(64, max(8, memory/1024)) }

// Linode asks for the Linode's id, its region and how many disks it can have. A token has to be fetched before.
// Where the region has no metadata service, the error is final if somebody else answers at its address.
func Linode(ctx context.Context, base string) (Info, error) {
	if base == "" {
		base = linodeBase
	}
	base = strings.TrimRight(base, "/") + "/v1/"
	return untilAnswered(ctx, func(ctx context.Context) (Info, error) {
		m, err := askLinode(ctx, base)
		if errors.Is(err, errAbsent) {
			return Info{}, fmt.Errorf("%w: %w; some regions have no metadata service: %w", fault.Unavailable, err, errFinal)
		}
		return m, err
	})
}

func askLinode(ctx context.Context, base string) (Info, error) {
	const accept, form = "Accept", "application/json"
	body, err := put(ctx, question{
		method: http.MethodPut, address: base + "token", header: map[string]string{"Metadata-Token-Expiry-Seconds": linodeToken, accept: form},
	})
	if err != nil {
		return Info{}, err
	}
	var tokens []string
	if err := json.Unmarshal(body, &tokens); err != nil || len(tokens) != 1 {
		return Info{}, fmt.Errorf("the metadata service at %s gives no token; is this a Linode?: %w: %w", base, fault.Unavailable, errFinal)
	}
	body, err = put(ctx, question{
		method: http.MethodGet, address: base + "instance", header: map[string]string{"Metadata-Token": tokens[0], accept: form}, longest: longestInstance,
	})
	if err != nil {
		return Info{}, err
	}
	var told struct {
		ID     int64
		Region string
		Specs  struct{ Memory int64 }
	}
	if err := json.Unmarshal(body, &told); err != nil || told.ID <= 0 || told.Specs.Memory <= 0 || !linodeRegion.MatchString(told.Region) {
		return Info{}, fmt.Errorf("the metadata service at %s says that this is Linode %d in region %.40q with %d MB of memory; is this a Linode?: %w: %w",
			base, told.ID, told.Region, told.Specs.Memory, fault.Unavailable, errFinal)
	}
	return Info{ID: strconv.FormatInt(told.ID, 10), Zone: told.Region, MaxDisks: linodeMaxDisks(told.Specs.Memory)}, nil
}

// LinodeItself asks the machine, below root, what it knows of itself where the region has no metadata service:
// its id and how many disks it can have. Nothing on it tells the region.
func LinodeItself(root string) (Info, error) {
	serial, err := os.ReadFile(filepath.Join(root, "sys/devices/virtual/dmi/id/product_serial"))
	if err != nil {
		return Info{}, fmt.Errorf("read the Linode's id: %w: %w", fault.Unavailable, err)
	}
	id := strings.TrimSpace(string(serial))
	if !number.MatchString(id) {
		return Info{}, fmt.Errorf("the machine's serial number %.40q is no id of a Linode; is this one?: %w", id, fault.Unavailable)
	}
	info, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return Info{}, fmt.Errorf("read the size of the memory: %w: %w", fault.Unavailable, err)
	}
	kilobytes, err := memTotal(string(info))
	if err != nil {
		return Info{}, err
	}
	// The kernel has kept some of it for itself, so whole GiB are rounded up to: that is never more than there is.
	memory := int64(math.Ceil(float64(kilobytes)/(1<<20))) * 1024
	return Info{ID: id, MaxDisks: linodeMaxDisks(memory)}, nil
}

func memTotal(info string) (kilobytes int64, err error) {
	for line := range strings.Lines(info) {
		rest, is := strings.CutPrefix(line, "MemTotal:")
		if fields := strings.Fields(rest); is && len(fields) == 2 && fields[1] == "kB" {
			if kilobytes, err = strconv.ParseInt(fields[0], 10, 64); err == nil && kilobytes > 0 {
				return kilobytes, nil
			}
		}
	}
	return 0, fmt.Errorf("/proc/meminfo does not tell the size of the memory: %w", fault.Unavailable)
}
