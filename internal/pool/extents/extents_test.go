package extents

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

const kib, mib = 1 << 10, 1 << 20

// reserved returns an open file with this many reserved bytes.
func reserved(t *testing.T, size int64) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	if size > 0 {
		must(t, unix.Fallocate(int(f.Fd()), 0, 0, size))
	}
	return f
}

func punch(t *testing.T, f *os.File, at, length int64) {
	t.Helper()
	must(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, length))
}

func TestHoles(t *testing.T) {
	f := reserved(t, 8*mib)
	if got, err := Holes(f, 8*mib); err != nil || len(got) != 0 {
		t.Errorf("Holes of a reserved file = %v, %v, want none", got, err)
	}
	_, err := f.WriteAt([]byte("data"), 5*mib)
	must(t, err)
	must(t, f.Sync())
	if got, err := Holes(f, 8*mib); err != nil || len(got) != 0 {
		t.Errorf("Holes of a reserved and written file = %v, %v, want none", got, err)
	}
	if got, err := Holes(f, 10*mib); err != nil || !reflect.DeepEqual(got, []Range{{8 * mib, 2 * mib}}) {
		t.Errorf("Holes beyond the end = %v, %v", got, err)
	}

	// More holes than the kernel tells of in one answer.
	var want []Range
	for at := int64(0); at < 8*mib; at += 16 * kib {
		punch(t, f, at, 4*kib)
		want = append(want, Range{at, 4 * kib})
	}
	if got, err := Holes(f, 8*mib); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Holes = %v, %v, want %v", got, err, want)
	}
	if got, err := Holes(f, 8*mib-2*kib); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Holes up to the middle of a block = %v, %v, want %v", got, err, want)
	}
	if got, err := Holes(reserved(t, 0), 4*mib); err != nil || !reflect.DeepEqual(got, []Range{{0, 4 * mib}}) {
		t.Errorf("Holes of an empty file = %v, %v", got, err)
	}
}

// Zeros that were only read are not data, also while they are in the page cache.
func TestWhatWasOnlyReadIsNotWritten(t *testing.T) {
	f := reserved(t, 16*mib)
	_, err := os.ReadFile(f.Name())
	must(t, err)
	if total, err := Written(f, 16*mib); err != nil || total != 0 {
		t.Errorf("Written after a read = %d, %v, want 0", total, err)
	}
	for _, at := range []int64{0, 4096, 8 * mib} {
		_, err := f.WriteAt(make([]byte, 4096), at)
		must(t, err)
	}
	for size, want := range map[int64]int64{16 * mib: 3 * 4096, 8 * mib: 8192} {
		if total, err := Written(f, size); err != nil || total != want {
			t.Errorf("Written of %d bytes = %d, %v, want %d", size, total, err, want)
		}
	}
}
