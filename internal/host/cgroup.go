package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Cgroups is the folder where the machine's cgroups of version 2 are mounted.
type Cgroups string

// IOMax are the limits that a cgroup has for one block device. 0: no limit.
type IOMax struct {
	// ReadIOPS and WriteIOPS are operations a second.
	ReadIOPS, WriteIOPS int64
	// ReadBandwidth and WriteBandwidth are bytes a second.
	ReadBandwidth, WriteBandwidth int64
}

// Check proves that cgroups of version 2 with the io controller are there and can be written; fault.NoIOLimits if not.
func (c Cgroups) Check() error {
	var st unix.Statfs_t
	if err := unix.Statfs(string(c), &st); err != nil {
		return fmt.Errorf("%s: %w: %w", c, fault.NoIOLimits, err)
	}
	if st.Type != unix.CGROUP2_SUPER_MAGIC {
		return fmt.Errorf("%s is no mount of cgroup v2, which alone has io.max: %w", c, fault.NoIOLimits)
	}
	controllers, err := readLine(filepath.Join(string(c), "cgroup.controllers"))
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(controllers), "io") {
		return fmt.Errorf("the cgroup v2 at %s has no io controller (it has: %s): %w", c, controllers, fault.NoIOLimits)
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("%s is mounted read-only: %w", c, fault.NoIOLimits)
	}
	return nil
}

const (
	// podDepth is the maximum depth of a pod's cgroup. The kubelet's own names have three levels; its --cgroup-root, and a kubelet that
	// itself runs in a container, add some above them.
	podDepth = 7
	// podPatience is how long Pod waits. The kubelet creates the cgroup in another goroutine than the one that mounts volumes.
	podPatience = 3 * time.Second
	podPause    = 100 * time.Millisecond
)

// Pod returns the folder of the cgroup of a pod, and waits a moment until the kubelet has created it; fault.NoIOLimits if there is none.
func (c Cgroups) Pod(ctx context.Context, uid string) (string, error) {
	var dir string
	err := wait.Every(podPause, int(podPatience/podPause)).Retry(ctx, func(err error) bool { return errors.Is(err, fs.ErrNotExist) },
		func() (err error) {
			dir, err = c.find(uid)
			return err
		})
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: %w", fault.NoIOLimits, err)
	}
	return dir, err
}

// find looks for the cgroup of a pod in the way in which the kubelet names it: "pod" and the pod's UID with the cgroup driver cgroupfs,
// a slice that ends with them with systemd. The path above it depends on the class of the pod and on the kubelet's settings, so the
// levels are searched one after the other. None is fs.ErrNotExist.
func (c Cgroups) find(uid string) (string, error) {
	plain, slice := "pod"+uid, "-pod"+strings.ReplaceAll(uid, "-", "_")+".slice"
	level := []string{string(c)}
	for range podDepth {
		var below, found []string
		for _, dir := range level {
			entries, err := os.ReadDir(dir)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
				continue // ended in the meantime
			}
			if err != nil {
				return "", fmt.Errorf("look for the cgroup of pod %s: %w: %w", uid, fault.Unavailable, err)
			}
			for _, e := range entries {
				if !e.IsDir() {
					continue
				}
				path := filepath.Join(dir, e.Name())
				below = append(below, path)
				if e.Name() == plain || strings.HasSuffix(e.Name(), slice) {
					found = append(found, path)
				}
			}
		}
		switch len(found) {
		case 0:
			level = below
		case 1:
			return found[0], nil
		default:
			return "", fmt.Errorf("several cgroups have the name of pod %s (%s): %w", uid, strings.Join(found, ", "), fault.NoIOLimits)
		}
	}
	return "", fmt.Errorf("no cgroup below %s has the name of pod %s: %w", c, uid, fs.ErrNotExist)
}

// Limit sets the limits of a cgroup for the block device with this number, a whole disk or a mapping. It replaces those that the cgroup
// has for the device, and keeps those for others. A cgroup that cannot have limits is fault.NoIOLimits.
func (c Cgroups) Limit(dir string, number uint64, limits IOMax) error {
	line := fmt.Sprintf("%s rbps=%s wbps=%s riops=%s wiops=%s", deviceKey(number),
		maximum(limits.ReadBandwidth), maximum(limits.WriteBandwidth), maximum(limits.ReadIOPS), maximum(limits.WriteIOPS))
	if err := writeLimits(dir, line); err != nil {
		return fmt.Errorf("limit I/O with %q: %w", line, explainWrite(err))
	}
	has, err := readLimits(dir)
	if err != nil {
		return err
	}
	if limits != (IOMax{}) && !slices.Contains(has, line) {
		return fmt.Errorf("the kernel did not take the limits %q, %s has %q: %w", line, ioMax(dir), has, fault.NoIOLimits)
	}
	return nil
}

// Unlimit removes the limits that the cgroup of a pod has for a block device. A pod without a cgroup, or without limits for the device, is
// no error.
func (c Cgroups) Unlimit(uid string, number uint64) error {
	dir, err := c.find(uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	has, err := readLimits(dir)
	limited := slices.ContainsFunc(has, func(line string) bool { return strings.HasPrefix(line, deviceKey(number)+" ") })
	if errors.Is(err, fs.ErrNotExist) || err == nil && !limited {
		return nil
	}
	if err == nil {
		err = c.Limit(dir, number, IOMax{})
	}
	if _, gone := os.Stat(dir); errors.Is(gone, fs.ErrNotExist) {
		return nil
	}
	return err
}

func ioMax(dir string) string { return filepath.Join(dir, "io.max") }

// writeLimits writes one line of io.max. It creates no file: a cgroup without the io controller has none.
func writeLimits(dir, line string) error {
	f, err := os.OpenFile(ioMax(dir), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// readLimits returns the lines of io.max.
func readLimits(dir string) ([]string, error) {
	text, err := os.ReadFile(ioMax(dir))
	if err != nil {
		return nil, fmt.Errorf("read the limits of I/O: %w: %w", fault.Unavailable, err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n"), nil
}

// explainWrite says why limits could not be written.
func explainWrite(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: the cgroup of the pod does not have the io controller, or the kernel lacks CONFIG_BLK_DEV_THROTTLING: %w",
			fault.NoIOLimits, err)
	case errors.Is(err, unix.EROFS), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", fault.NoIOLimits, err)
	}
	return fmt.Errorf("%w: %w", fault.Unavailable, err)
}

// deviceKey is how io.max names a device.
func deviceKey(number uint64) string {
	return fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number))
}

// maximum is how io.max writes a limit.
func maximum(limit int64) string {
	if limit == 0 {
		return "max"
	}
	return strconv.FormatInt(limit, 10)
}
