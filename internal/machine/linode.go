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
	// linodeBase is the base URL of the metadata service of every Linode.
	linodeBase = Usual
	// linodeToken is the requested lifetime of a token in seconds; the token is used at once.
	linodeToken = "60"
	// longestInstance is the maximum length of the description of a Linode, which has all its tags.
	longestInstance = 64 << 10
)

var linodeRegion = regexp.MustCompile(`^[a-z][a-z0-9-]{1,30}$`)

// linodeMaxDisks returns the maximum number of disks and volumes of a Linode with this memory in MB: one for each GiB, at least 8
// and at most 64.
func linodeMaxDisks(memory int64) int64 { return min(64, max(8, memory/1024)) }

// Linode returns the Linode's id, its region and its maximum number of disks. It fetches a token first. In a region without
// metadata service, the error is final if another service answers at its address.
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

// LinodeItself returns the Linode's id and its maximum number of disks for a region without metadata service. It reads them from
// the Linode's own files below root, which do not have the region.
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
	// MemTotal lacks the memory that the kernel has reserved, so the size is rounded up to whole GiB, which never exceeds the
	// actual size.
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
