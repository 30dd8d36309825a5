package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// Open refuses a folder that another user can write to, for a new pool and for an existing one.
func TestPoolThatOthersCanChangeIsRefused(t *testing.T) {
	tests := map[string]func(dir string) error{
		"writable by all":       func(dir string) error { return os.Chmod(dir, 0o777) },
		"writable by its group": func(dir string) error { return os.Chmod(dir, 0o770) },
		"volumes writable":      func(dir string) error { return os.Chmod(filepath.Join(dir, string(pool.Volumes)), 0o777) },
		"owned by another user": func(dir string) error { return os.Chown(dir, 1000, -1) },
		"snapshots owned by another user": func(dir string) error {
			return os.Chown(filepath.Join(dir, string(pool.Snapshots)), 1000, -1)
		},
	}
	for name, spoil := range tests {
		if os.Geteuid() != 0 && strings.Contains(name, "owned") {
			continue // chown needs root
		}
		for _, made := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				cfg := configOf(t, filepath.Join(t.TempDir(), "pool"))
				if made {
					openPool(t, cfg.Dir)
				} else {
					must(t, os.Mkdir(filepath.Join(cfg.Dir, string(pool.Volumes)), 0o700))
					must(t, os.Mkdir(filepath.Join(cfg.Dir, string(pool.Snapshots)), 0o700))
				}
				must(t, spoil(cfg.Dir))
				before, err := os.Stat(cfg.Dir)
				must(t, err)
				_, err = Open(t.Context(), cfg)
				wantKind(t, "Open", err, fault.Precondition)
				if after, err := os.Stat(cfg.Dir); err != nil || after.Mode() != before.Mode() {
					t.Errorf("the folder has mode %v, %v, before %v", after.Mode(), err, before.Mode())
				}
			})
		}
	}
}
