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
	// yandexBase is the base URL of the metadata service of every instance.
	yandexBase = Usual
	// longestYandexToken is the maximum length of an answer with a token of the service account.
	longestYandexToken = 16 << 10
)

var (
	yandexID   = regexp.MustCompile(`^[a-z0-9]{1,50}$`)
	yandexZone = regexp.MustCompile(`^[a-z][a-z0-9-]{1,49}$`)
)

// Yandex returns the instance's id, zone and maximum number of disks. The service does not report that number; it is read from the
// instance's own files.
func Yandex(ctx context.Context, base string) (Info, error) {
	return YandexBelow(ctx, base, "/")
}

// YandexBelow is Yandex with the instance's own files below root.
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

// YandexIdentity is Yandex without MaxDisks, for a program that may not read the instance's own files.
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

// YandexFolder returns the id of the folder of the instance.
func YandexFolder(ctx context.Context, base string) (string, error) {
	return untilAnswered(ctx, func(ctx context.Context) (string, error) {
		id, err := yandexText(ctx, base, "instance/vendor/folder-id")
		if err == nil && !yandexID.MatchString(id) {
			err = fmt.Errorf("the metadata service says that the folder is %.40q; is this Yandex Cloud?: %w: %w", id, fault.Unavailable, errFinal)
		}
		return id, err
	})
}

// YandexToken makes one request for a token of the instance's service account, and returns it with its expiry. fault.Denied if the
// instance has no service account.
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

// The documented limits of the hardware generations 1.1, and 1.2 and 2 (https://yandex.cloud/en/docs/compute/concepts/limits and
// .../hardware-generations). Only generation 2 boots by UEFI, which the instance can detect. It cannot distinguish 1.1 and 1.2, so
// 1.2 counts as 1.1 without --max-volumes.
const (
	// An instance of generation 1.1 can have fewDisks up to a number of CPUs that depends on its platform, and manyDisks above it.
	fewDisks, manyDisks = 8, 16
	// maxDevices is the maximum number of disks and network interfaces with which an instance of generation 1.1 still boots.
	maxDevices = 14
	// An instance of the later generations can have laterDisks, and manyLaterDisks if it has laterCPUs or more.
	laterDisks, manyLaterDisks, laterCPUs = 62, 80, 6
)

// fewCPUs returns the maximum number of CPUs of an instance with fewDisks. The metadata service does not report the platform, but
// the hypervisor is QEMU, and the CPUs have QEMU's model names.
func fewCPUs(model string) int64 {
	switch {
	case strings.Contains(model, "(Icelake"): // standard-v3, highfreq-v3
		return 32
	case strings.Contains(model, "(Cascadelake"): // standard-v2
		return 20
	}
	return 18 // standard-v1, and the lowest
}

// yandexMaxDisks returns the maximum number of disks of an instance of generation 1.1, including its boot disk.
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

// The kernel's numbers of virtio device types.
const (
	virtioNet = 0x0001
	virtioFS  = 0x001a
)

// yandexMaxDisksBelow returns the maximum number of disks of the instance whose own files are below root.
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
			continue // the device is gone
		}
		if kind, err := strconv.ParseInt(strings.TrimSpace(string(text)), 0, 64); err == nil {
			kinds[kind]++
		}
	}
	// Without a CPU model, as on ARM, the lowest limit applies.
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
