package mount

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Severity is how severe a Health is.
type Severity int

// The severities.
const (
	Degraded     Severity = iota + 1 // usable, but not as it should be
	Inaccessible                     // not usable
	DataLoss                         // data is lost or probably so
)

// Health is something wrong with a mounted filesystem.
type Health struct {
	Severity Severity
	// Reason is one word in CamelCase. It is the same in all releases.
	Reason string
	// Message is for people.
	Message string
}

// The reasons of the health of a filesystem and its device.
const (
	// ReasonStalled is the reason of a device that has requests in flight and completes none.
	ReasonStalled  = "DeviceStalled"
	reasonDead     = "FilesystemDead"
	reasonReadOnly = "FilesystemReadOnly"
	reasonErrors   = "FilesystemErrors"
)

// HealthReasons are the reasons of Health.
func HealthReasons() []string {
	return []string{ReasonStalled, reasonDead, reasonReadOnly, reasonErrors}
}

// answerTime is the time limit for listing the root of a filesystem, after which it counts as dead.
const answerTime = 5 * time.Second

// Health returns what is wrong with a mounted filesystem, as far as that can be known without reading all of it. It writes
// nothing. While the device, or one below it, is stalled, it touches neither the filesystem nor the device.
func (m *Mounter) Health(ctx context.Context, at Mount) ([]Health, error) {
	if found := m.Stalled(append(m.Sysfs.Below(at.Device), at.Device)); len(found) > 0 {
		return found, nil
	}
	var found []Health
	add := func(severity Severity, reason, message string, args ...any) {
		found = append(found, Health{severity, reason, fmt.Sprintf(message, args...)})
	}
	if err := m.Responds(ctx, at); errors.Is(err, fault.MountDead) {
		add(Inaccessible, reasonDead, "%v", err)
	}
	if at.ReadOnlyByError() {
		add(Degraded, reasonReadOnly, "the kernel has made the %s at %s read-only after an error (see the kernel log); "+
			"stop the pods that use it: the next stage checks it", at.FSType, at.Mountpoint)
	}
	if mounter.Filesystem(at.FSType) == mounter.Ext4 {
		if n := ext4Errors(at); n > 0 {
			add(Degraded, reasonErrors, "ext4 has recorded %d errors (see the kernel log); stop the pods that use it: the next stage checks it", n)
		}
	}
	return found, nil
}

// Stalled returns the health of the first of these devices that is stalled; none if none is. It reads the kernel's counters and nothing
// else.
func (m *Mounter) Stalled(devices []uint64) []Health {
	for _, device := range devices {
		if stall, stalled := m.Stalls.Read(device); stalled {
			return []Health{{Inaccessible, ReasonStalled, fmt.Sprintf("%s (%d:%d) has %d requests in flight and has completed none for %.0f s: the data path is blocked; "+
				"look for the disk in the kernel's log and in the cloud's console; if it does not come back, delete the pods that use it, and restart the machine if they do not end",
				m.Sysfs.Kernel(device), unix.Major(device), unix.Minor(device), stall.InFlight, time.Since(stall.Since).Seconds())}}
		}
	}
	return nil
}

// Responds returns fault.MountDead for a mounted filesystem that does not answer: after its device failed or was removed, it stays
// in the mount table and returns errors, or blocks. It returns fault.Unavailable for one that waits for a device with requests in
// flight: the device is slow, or stalled soon.
func (m *Mounter) Responds(ctx context.Context, at Mount) error {
	path := at.Mountpoint
	if slices.Contains(splitMountOptions([]string{at.VFSOptions}), "shutdown") {
		return fmt.Errorf("the filesystem at %s has shut itself down: %w; stop the pods that use it and unstage the volume", path, fault.MountDead)
	}
	before, _, _ := m.Sysfs.BlockStats(at.Device)
	err := m.listings.Run(ctx, strconv.Itoa(at.ID), answerTime, func(context.Context) error { return listOne(path) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled): // its caller has gone
		return fmt.Errorf("the filesystem at %s: %w: %w", path, fault.Unavailable, err)
	case errors.Is(err, wait.ErrNoAnswer) && m.works(at.Device, before):
		return fmt.Errorf("the filesystem at %s waits for its device: %w: %w", path, fault.Unavailable, err)
	case errors.Is(err, wait.ErrNoAnswer):
		return fmt.Errorf("the filesystem at %s does not answer: %w: %w", path, fault.MountDead, err)
	}
	if gone := at.Stays(); gone != nil { // the error is of what is there now, or of a path that is gone
		return gone
	}
	return fmt.Errorf("the filesystem at %s is dead: %w: %w (stop the pods that use it and unstage the volume)", path, fault.MountDead, err)
}

// works reports whether a device has requests in flight or has completed one since an earlier reading.
func (m *Mounter) works(device uint64, before host.BlockStats) bool {
	now, ok, err := m.Sysfs.BlockStats(device)
	return ok && err == nil && (now.InFlight > 0 || now.Completed() != before.Completed())
}

func listOne(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if _, err := dir.Readdirnames(1); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// ReadOnlyByError reports whether the kernel has made a filesystem read-only after an error.
func (m Mount) ReadOnlyByError() bool {
	filesystem := splitMountOptions([]string{m.VFSOptions})
	return slices.Contains(splitMountOptions([]string{m.Options}), "rw") &&
		(slices.Contains(filesystem, "ro") || slices.Contains(filesystem, "emergency_ro"))
}

// ext4Errors returns how many errors ext4 has recorded since the last fsck.
func ext4Errors(info Mount) int {
	link, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", info.Major, info.Minor))
	if err != nil {
		return 0
	}
	text, err := os.ReadFile(filepath.Join("/sys/fs/ext4", filepath.Base(link), "errors_count"))
	if err != nil {
		return 0 // not an ext4 that the kernel lists, such as one below a stacked device
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}
