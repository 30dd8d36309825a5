package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// yandexBase is the address that every machine of Yandex Cloud reaches its metadata service at.
	yandexBase = Usual
	// longestYandexToken bounds the answer with a token of the machine's account.
	longestYandexToken = 16 << 10
)

var (
	yandexID   = regexp.MustCompile(`^[a-z0-9]{1,50}$`)
	yandexZone = regexp.MustCompile(`^[a-z][a-z0-9-]{1,49}$`)
)

// Yandex asks for the machine's id and zone. The service does not tell how many disks the machine can have; that
// is read from the machine itself.
func Yandex(ctx context.Context, base string) (Info, error) {
	return YandexBelow(ctx, base, "/")
}

// YandexBelow is Yandex with the machine's own files below root.
func YandexBelow(ctx context.Context, base, root string) (Info, error) {
	m, err := YandexIdentity(ctx, base)
	if err != nil {
		return Info{}, err
	}
	if m.MaxDisks, err = yandexMaxDisksBelow(root); err != nil {
		return Info{}, err
	}
	return m, nil
}

// YandexIdentity is Yandex without the places for disks, for a program that may not see the machine's own files.
func YandexIdentity(ctx context.Context, base string) (Info, error) {
	return untilAnswered(ctx, func(ctx context.Context) (Info, error) {
		id, err := yandexText(ctx, base, "instance/id")
		if err != nil {
			return Info{}, err
		}
		zone, err := yandexText(ctx, base, "instance/zone") // projects/<cloud>/zones/<zone>
		if err != nil {
			return Info{}, err
		}
		zone = path.Base(zone)
		if !yandexID.MatchString(id) || !yandexZone.MatchString(zone) {
			return Info{}, fmt.Errorf("the metadata service says that this is the machine %.40q in zone %.40q; is this Yandex Cloud?: %w: %w",
				id, zone, fault.Unavailable, errFinal)
		}
		return Info{ID: id, Zone: zone}, nil
	})
}

// YandexFolder asks for the folder that the machine is in.
func YandexFolder(ctx context.Context, base string) (string, error) {
	return untilAnswered(ctx, func(ctx context.Context) (string, error) {
		id, err := yandexText(ctx, base, "instance/vendor/folder-id")
		if err == nil && !yandexID.MatchString(id) {
			err = fmt.Errorf("the metadata service says that the folder is %.40q; is this Yandex Cloud?: %w: %w", id, fault.Unavailable, errFinal)
		}
		return id, err
	})
}

// YandexToken asks once for a token of the machine's service account, and when it ends. fault.Denied where the
// machine has no such account.
func YandexToken(ctx context.Context, base string) (token string, expires time.Time, err error) {
	body, err := put(ctx, yandexQuestion(base, "instance/service-accounts/default/token", longestYandexToken))
	switch {
	case errors.Is(err, errAbsent):
		return "", time.Time{}, fmt.Errorf("the machine has no service account; give it one, or this program a --credentials-file: %w: %w", fault.Denied, err)
	case err != nil:
		return "", time.Time{}, fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	var told struct {
		Token   string `json:"access_token"`
		Seconds int64  `json:"expires_in"`
	}
	if err := json.Unmarshal(body, &told); err != nil || told.Token == "" {
		return "", time.Time{}, fmt.Errorf("the metadata service's answer holds no token: %w", fault.Unavailable)
	}
	return told.Token, time.Now().Add(time.Duration(told.Seconds) * time.Second), nil
}

func yandexText(ctx context.Context, base, name string) (string, error) {
	body, err := put(ctx, yandexQuestion(base, name, 0))
	return strings.TrimSpace(string(body)), err
}

func yandexQuestion(base, name string, longest int64) question {
	if base == "" {
		base = yandexBase
	}
	return question{
		method: http.MethodGet, address: strings.TrimRight(base, "/") + "/computeMetadata/v1/" + name,
		header: map[string]string{"Metadata-Flavor": "Google"}, longest: longest,
	}
}

// What the cloud documents for the hardware generations 1.1, and 1.2 and 2
// (https://yandex.cloud/en/docs/compute/concepts/limits and .../hardware-generations). Generation 2 alone boots by UEFI,
// which the machine sees. It cannot distinguish 1.1 and 1.2, so 1.2 counts as 1.1 without --max-volumes.
const (
	// A machine of generation 1.1 has fewDisks up to a number of CPUs that its platform sets, above it manyDisks.
	fewDisks, manyDisks = 8, 16
	// maxDevices is how many disks and network interfaces a machine of generation 1.1 can have and still boot.
	maxDevices = 14
	// A machine of the later generations has laterDisks, with laterCPUs and more manyLaterDisks.
	laterDisks, manyLaterDisks, laterCPUs = 62, 80, 6
)

// fewCPUs is up to how many CPUs a machine has fewDisks. The metadata service does not tell the platform, but the
// hypervisor is QEMU and gives its CPUs QEMU's names.
func fewCPUs(model string) int64 {
	switch {
	case strings.Contains(model, "(Icelake"): // standard-v3, highfreq-v3
		return 32
	case strings.Contains(model, "(Cascadelake"): // standard-v2
		return 20
	}
	return 18 // standard-v1, and the lowest
}

// yandexMaxDisks is how many disks a machine of generation 1.1 can have, the one that it boots from among them.
func yandexMaxDisks(model string, cpus, interfaces, filesystems int64) int64 {
	disks := int64(fewDisks)
	if cpus > fewCPUs(model) {
		disks = manyDisks
	}
	return min(disks, maxDevices-max(interfaces, 1)) - filesystems
}

// laterMaxDisks is yandexMaxDisks for the later generations.
func laterMaxDisks(cpus, filesystems int64) int64 {
	if cpus < laterCPUs {
		return laterDisks - filesystems
	}
	return manyLaterDisks - filesystems
}

// The kinds of virtio devices, as the kernel numbers them.
const (
	virtioNet = 0x0001
	virtioFS  = 0x001a
)

// yandexMaxDisksBelow is the number of places of the machine below root.
func yandexMaxDisksBelow(root string) (int64, error) {
	present, err := os.ReadFile(filepath.Join(root, "sys/devices/system/cpu/present"))
	if err != nil {
		return 0, fmt.Errorf("count the CPUs: %w: %w", fault.Unavailable, err)
	}
	cpus, err := countRange(strings.TrimSpace(string(present)))
	if err != nil {
		return 0, fmt.Errorf("count the CPUs: %w: %w", fault.Unavailable, err)
	}
	kinds := map[int64]int64{}
	devices, err := filepath.Glob(filepath.Join(root, "sys/bus/virtio/devices/*/device"))
	if err != nil {
		return 0, fmt.Errorf("count the devices: %w: %w", fault.Unavailable, err)
	}
	for _, device := range devices {
		text, err := os.ReadFile(device)
		if err != nil {
			continue // it has gone
		}
		if kind, err := strconv.ParseInt(strings.TrimSpace(string(text)), 0, 64); err == nil {
			kinds[kind]++
		}
	}
	// A kernel that names no CPU, as on ARM, leaves the lowest bound.
	about, _ := os.ReadFile(filepath.Join(root, "proc/cpuinfo"))
	_, model, _ := strings.Cut(string(about), "\nmodel name")
	model, _, _ = strings.Cut(model, "\n")
	if _, err := os.Stat(filepath.Join(root, "sys/firmware/efi")); err == nil {
		return laterMaxDisks(cpus, kinds[virtioFS]), nil
	}
	return yandexMaxDisks(model, cpus, kinds[virtioNet], kinds[virtioFS]), nil
}

// countRange counts the numbers of a list such as 0-3,8.
func countRange(list string) (n int64, err error) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, fromErr := strconv.ParseInt(first, 10, 32)
		to, toErr := strconv.ParseInt(last, 10, 32)
		if err := errors.Join(fromErr, toErr); err != nil || to < from {
			return 0, fmt.Errorf("%.40q is no list of numbers", list)
		}
		n += to - from + 1
	}
	return n, nil
}
