package pool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Examine refuses what Open refuses, and leaves every folder as it was.
func TestExamineRefusesWithoutAChange(t *testing.T) {
	tests := map[string]struct {
		set  func(t *testing.T, cfg *Config)
		want error
	}{
		"an empty folder":   {func(t *testing.T, cfg *Config) { must(t, os.Mkdir(cfg.Dir, 0o700)) }, nil},
		"a pool":            {func(t *testing.T, cfg *Config) { made(t, *cfg) }, nil},
		"no folder":         {func(*testing.T, *Config) {}, fs.ErrNotExist},
		"no pool of a name": {func(_ *testing.T, cfg *Config) { cfg.Name = "fast" }, fault.NotFound},
		"a folder for all":  {func(t *testing.T, cfg *Config) { made(t, *cfg); must(t, os.Chmod(cfg.Dir, 0o777)) }, fault.PoolUnusable},
		"another node's":    {func(t *testing.T, cfg *Config) { made(t, *cfg); cfg.Node = "n2" }, fault.PoolUnusable},
		"other files": {func(t *testing.T, cfg *Config) {
			must(t, os.Mkdir(cfg.Dir, 0o700))
			must(t, os.WriteFile(cfg.Dir+"/f", nil, 0o600))
		}, fault.PoolUnusable},
		"a disk not mounted": {func(t *testing.T, cfg *Config) { made(t, *cfg); must(t, os.RemoveAll(cfg.Dir)) }, fault.PoolUnusable},
		"another disk": {func(t *testing.T, cfg *Config) {
			made(t, *cfg)
			must(t, os.RemoveAll(cfg.Dir))
			made(t, Config{Dir: cfg.Dir, Node: cfg.Node})
		}, fault.PoolUnusable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := Config{Dir: filepath.Join(dir, "pool"), Node: "n1", IDFile: filepath.Join(dir, "state", "pool-id")}
			tc.set(t, &cfg)
			before := tree(t, dir)
			if own, err := Examine(t.Context(), cfg); !errors.Is(err, tc.want) || own {
				t.Errorf("Examine = %t, %v, want %v", own, err, tc.want)
			}
			if after := tree(t, dir); after != before {
				t.Errorf("the folder had\n%s and has\n%s", before, after)
			}
		})
	}
}

func made(t *testing.T, cfg Config) {
	t.Helper()
	_, err := Open(t.Context(), cfg)
	must(t, err)
}

// tree lists the files of a folder, with their modes and times.
func tree(t *testing.T, dir string) (list string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		list += path + " " + info.Mode().String() + " " + info.ModTime().String() + "\n"
		return err
	}))
	return list
}
