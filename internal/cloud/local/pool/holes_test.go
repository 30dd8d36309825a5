package pool

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

func TestHoles(t *testing.T) {
	const kib, mib = 1 << 10, 1 << 20
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	must(t, err)
	defer func() { _ = f.Close() }()
	must(t, unix.Fallocate(int(f.Fd()), 0, 0, 8*mib))
	if got, err := holes(f, 8*mib); err != nil || len(got) != 0 {
		t.Errorf("holes of a reserved file = %v, %v, want none", got, err)
	}
	_, err = f.WriteAt([]byte("data"), 5*mib)
	must(t, err)
	must(t, f.Sync())
	if got, err := holes(f, 8*mib); err != nil || len(got) != 0 {
		t.Errorf("holes of a reserved and written file = %v, %v, want none", got, err)
	}
	if got, err := holes(f, 10*mib); err != nil || !reflect.DeepEqual(got, []extent{{8 * mib, 2 * mib}}) {
		t.Errorf("holes beyond the end = %v, %v", got, err)
	}

	// More holes than the kernel tells of in one answer.
	const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	var want []extent
	for at := int64(0); at < 8*mib; at += 16 * kib {
		must(t, unix.Fallocate(int(f.Fd()), punch, at, 4*kib))
		want = append(want, extent{at, 4 * kib})
	}
	if got, err := holes(f, 8*mib); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("holes = %v, %v, want %v", got, err, want)
	}
	if got, err := holes(f, 8*mib-2*kib); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("holes up to the middle of a block = %v, %v, want %v", got, err, want)
	}
	must(t, disk{}.fill(t.Context(), f, 8*mib))
	if got, err := holes(f, 8*mib); err != nil || len(got) != 0 {
		t.Errorf("holes after fill = %v, %v, want none", got, err)
	}

	empty, err := os.Create(filepath.Join(t.TempDir(), "image"))
	must(t, err)
	defer func() { _ = empty.Close() }()
	if got, err := holes(empty, 4*mib); err != nil || !reflect.DeepEqual(got, []extent{{0, 4 * mib}}) {
		t.Errorf("holes of an empty file = %v, %v", got, err)
	}
}
