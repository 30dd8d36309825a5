//go:build e2e

package mounter

import (
	"os"
	"path/filepath"
	"testing"
)

// TestEverMounted: what mkfs leaves was never mounted. A mount shows as soon as a file is on the disk, so a power
// cut hides none that holds data, and it shows for ever.
func TestEverMounted(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fs      Filesystem
		options []string
	}{
		"ext4": {Ext4, nil}, "xfs": {XFS, nil},
		"xfs with long log records": {XFS, []string{"-d", "su=64k,sw=4", "-l", "su=256k,size=64m"}},
		"xfs with many groups":      {XFS, []string{"-d", "agcount=9", "-b", "size=1024"}},
	} {
		t.Run(name, func(t *testing.T) {
			dev, dir := newLoop(t, 2*small), t.TempDir()
			shows := func(when string, want bool) {
				t.Helper()
				f, err := os.Open(dev.back)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = f.Close() }()
				if got, err := everMounted(f, 2*small, tc.fs); got != want || err != nil {
					t.Errorf("everMounted %s = %v, %v, want %v", when, got, err, want)
				}
			}
			if _, err := New(Config{}).EnsureFormatted(t.Context(), dev, FormatRequest{Volume: "v1", Filesystem: tc.fs, MkfsOptions: tc.options}); err != nil {
				t.Fatal(err)
			}
			shows("after mkfs", false)
			must(t, "mount", "-t", string(tc.fs), dev.Path(), dir)
			f, err := os.Create(filepath.Join(dir, "x"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString("synced"); err != nil {
				t.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			shows("when a file is synced", true)
			_ = f.Close()
			mustUnmount(t, dir)
			shows("after the unmount", true)
			must(t, "mount", "-t", string(tc.fs), dev.Path(), dir)
			mustUnmount(t, dir)
			shows("after another mount", true)
		})
	}
}
