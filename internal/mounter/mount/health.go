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

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
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

// The reasons of the health of a filesystem.
const (
	reasonDead     = "FilesystemDead"
	reasonReadOnly = "FilesystemReadOnly"
	reasonErrors   = "FilesystemErrors"
)

// HealthReasons are the reasons of Health.
func HealthReasons() []string {
	return []string{reasonDead, reasonReadOnly, reasonErrors}
}

// answerTime is the time limit for listing the root of a filesystem, after which it counts as dead.
const answerTime = 5 * time.Second

// Health returns what is wrong with a mounted filesystem, as far as that can be known without reading all of it. It writes
// nothing.
func (m *Mounter) Health(ctx context.Context, at Mount) ([]Health, error) {
	var found []Health
	add := func(severity Severity, reason, message string, args ...any) {
		found = append(found, Health{severity, reason, fmt.Sprintf(message, args...)})
	}
	if err := m.Responds(ctx, at); err != nil {
		add(Inaccessible, reasonDead, "%v", err)
	}
	if readOnlyByError(at) {
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

// Responds returns fault.MountDead for a mounted filesystem that does not answer: after its device failed or was removed, it stays
// in the mount table and returns errors, or blocks.
func (m *Mounter) Responds(ctx context.Context, at Mount) error {
	path := at.Mountpoint
	if slices.Contains(splitMountOptions([]string{at.VFSOptions}), "shutdown") {
		return fmt.Errorf("the filesystem at %s has shut itself down: %w; stop the pods that use it and unstage the volume", path, fault.MountDead)
	}
	err := m.listings.Run(ctx, strconv.Itoa(at.ID), answerTime, func(context.Context) error { return listOne(path) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, wait.ErrNoAnswer):
		return fmt.Errorf("the filesystem at %s does not answer: %w: %w", path, fault.MountDead, err)
	}
	return fmt.Errorf("the filesystem at %s is dead: %w: %w (stop the pods that use it and unstage the volume)", path, fault.MountDead, err)
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

// readOnlyByError reports whether the kernel has made a filesystem read-only after an error.
func readOnlyByError(info Mount) bool {
	filesystem := splitMountOptions([]string{info.VFSOptions})
	return slices.Contains(splitMountOptions([]string{info.Options}), "rw") &&
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
