package extents

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A pod that writes every other block of its volume makes an extent of each block, millions in a volume of a few GiB. So what reads the
// extents of an image takes no memory for each.
func TestManyExtentsTakeNoMemory(t *testing.T) {
	const block, count, most = 4096, 5_000, 100_000
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	must(t, err)
	defer func() { _ = f.Close() }()
	for i := range int64(count) {
		must(t, unix.Fallocate(int(f.Fd()), 0, 2*i*block, block))
	}
	for name, read := range map[string]func() (int64, error){
		"Written": func() (int64, error) { return Written(f, 2*count*block) },
		"EachHole": func() (n int64, err error) {
			err = EachHole(f, 2*count*block, func(Range) error {
				n++
				return nil
			})
			return n - count, err
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n, err := read()
		runtime.ReadMemStats(&after)
		if err != nil || n != 0 {
			t.Errorf("%s = %d, %v, want 0", name, n, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > most {
			t.Errorf("%s of %d extents allocates %d bytes, want max. %d", name, count, took, most)
		}
	}
}
