package files

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// Examine refuses what Open refuses, and leaves every folder as it was.
func TestExamineRefusesWithoutAChange(t *testing.T) {
	tests := map[string]struct {
		set  func(t *testing.T, cfg *pool.Config)
		want error
	}{
		"an empty disk":    {func(*testing.T, *pool.Config) {}, nil},
		"a pool":           {func(t *testing.T, cfg *pool.Config) { made(t, *cfg) }, nil},
		"nothing mounted":  {func(t *testing.T, cfg *pool.Config) { cfg.MountTable = mounts.Table(t) }, pool.ErrNotHere},
		"a pool of a name": {func(t *testing.T, cfg *pool.Config) { made(t, *cfg); cfg.Name = "fast" }, fault.PoolUnusable},
		"a folder for all": {func(t *testing.T, cfg *pool.Config) { made(t, *cfg); must(t, os.Chmod(cfg.Dir, 0o777)) }, fault.PoolUnusable},
		"another node's":   {func(t *testing.T, cfg *pool.Config) { made(t, *cfg); cfg.Node = "n2" }, fault.PoolUnusable},
		"other files":      {func(t *testing.T, cfg *pool.Config) { must(t, os.WriteFile(cfg.Dir+"/f", nil, 0o600)) }, fault.PoolUnusable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := configOf(t, filepath.Join(dir, "pool"))
			tc.set(t, &cfg)
			before := drivertest.Tree(t, dir)
			if err := Examine(t.Context(), cfg); !errors.Is(err, tc.want) {
				t.Errorf("Examine = %v, want %v", err, tc.want)
			}
			if after := drivertest.Tree(t, dir); after != before {
				t.Errorf("the folder had\n%s and has\n%s", before, after)
			}
		})
	}
}

func made(t *testing.T, cfg pool.Config) {
	t.Helper()
	_, err := Open(t.Context(), cfg)
	must(t, err)
}
