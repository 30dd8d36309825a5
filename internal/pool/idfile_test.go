package pool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// A missing pool of this node is not created again, and no other pool replaces it.
func TestMissingPoolIsNotMadeAnew(t *testing.T) {
	bare := func(t *testing.T, dir, _ string) {
		must(t, os.Rename(dir, dir+" unmounted"))
		must(t, os.Mkdir(dir, 0o700))
	}
	tests := map[string]struct {
		// prepare changes what the first start left: the pool in dir and its id in file.
		prepare func(t *testing.T, dir, file string)
		// says is what the refusal says, with FILE for the file; empty: the pool opens.
		says string
	}{
		"all is as it was":       {func(*testing.T, string, string) {}, ""},
		"a bare folder":          {bare, "is its disk mounted? To begin with an empty pool, remove FILE"},
		"no folder":              {func(t *testing.T, dir, _ string) { must(t, os.RemoveAll(dir)) }, "is its disk mounted?"},
		"another pool":           {func(t *testing.T, dir, file string) { bare(t, dir, file); openPool(t, dir) }, "To take this pool instead, remove FILE"},
		"a damaged id file":      {func(t *testing.T, _, file string) { must(t, os.Truncate(file, 9)) }, "from FILE"},
		"an id file without id":  {func(t *testing.T, _, file string) { must(t, os.WriteFile(file, []byte("{}"), 0o600)) }, "from FILE"},
		"the id file is removed": {func(t *testing.T, dir, file string) { bare(t, dir, file); must(t, os.Remove(file)) }, ""},
		"a pool without id file": {func(t *testing.T, _, file string) { must(t, os.Remove(file)) }, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			cfg := Config{Dir: filepath.Join(home, "pool"), Node: "n1", IDFile: filepath.Join(home, "state", "pool-id")}
			_, err := Open(t.Context(), cfg)
			must(t, err)
			tc.prepare(t, cfg.Dir, cfg.IDFile)
			before, _ := os.ReadDir(cfg.Dir)
			p, err := Open(t.Context(), cfg)
			if tc.says == "" {
				must(t, err)
				if n, err := readIDFile(cfg.IDFile); err != nil || n != (idFile{ID: p.id, Dir: p.dir}) {
					t.Errorf("the id file holds %+v, %v, want %s in %s", n, err, p.id, p.dir)
				}
				return
			}
			wantKind(t, "Open", err, fault.Precondition)
			if says := strings.ReplaceAll(tc.says, "FILE", cfg.IDFile); err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("Open = %v, want it to say %q", err, says)
			}
			if after, _ := os.ReadDir(cfg.Dir); len(after) != len(before) {
				t.Errorf("the folder held %v, now %v", before, after)
			}
		})
	}
}
