package files

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// The loop device is found through whatever lies between it and the pool's filesystem.
func TestLoopDevicesBelowAPool(t *testing.T) {
	for name, tc := range map[string]struct {
		device string // the folder in sysfs of the filesystem's device
		slaves map[string][]string
		files  []string
		want   []string
	}{
		"a loop device":                {device: "loop3", want: []string{"loop3"}},
		"a partition of a loop device": {device: "loop3/loop3p1", files: []string{"loop3/loop3p1/partition"}, want: []string{"loop3"}},
		"a logical volume on two loop devices": {
			device: "dm-1", slaves: map[string][]string{"dm-1": {"dm-0", "loop4"}, "dm-0": {"loop3"}}, want: []string{"loop3", "loop4"},
		},
		"a partition of a disk": {device: "vda/vda1", files: []string{"vda/vda1/partition"}},
		"no device":             {},
	} {
		t.Run(name, func(t *testing.T) {
			dir, sys := t.TempDir(), t.TempDir()
			devices := filepath.Join(sys, "devices")
			for _, name := range []string{"loop3", "loop4", "vda", "dm-0", "dm-1", tc.device} {
				must(t, os.MkdirAll(filepath.Join(devices, name), 0o700))
			}
			for _, file := range tc.files {
				must(t, os.WriteFile(filepath.Join(devices, file), nil, 0o600))
			}
			for upper, below := range tc.slaves {
				must(t, os.Mkdir(filepath.Join(devices, upper, "slaves"), 0o700))
				for _, lower := range below {
					must(t, os.Symlink(filepath.Join(devices, lower), filepath.Join(devices, upper, "slaves", lower)))
				}
			}
			var st unix.Stat_t
			must(t, unix.Stat(dir, &st))
			must(t, os.MkdirAll(filepath.Join(sys, "dev/block"), 0o700))
			if tc.device != "" {
				number := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
				must(t, os.Symlink(filepath.Join(devices, tc.device), filepath.Join(sys, "dev/block", number)))
			}
			found, err := LoopsBelow(dir, filepath.Join(sys, "block"))
			if err != nil || !slices.Equal(found, tc.want) {
				t.Errorf("LoopsBelow = %v, %v, want %v", found, err, tc.want)
			}
		})
	}
}

// hold takes the shared lock that a loop device of this volume would hold.
func hold(t *testing.T, p *Pool, id pool.ID) (release func()) {
	t.Helper()
	f, err := os.Open(p.ImagePath(id))
	must(t, err)
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB))
	return func() { _ = f.Close() }
}
