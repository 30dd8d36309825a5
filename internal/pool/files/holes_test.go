package files

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

// Zeros that were only read are not data, also while they are in the page cache.
func TestWhatWasOnlyReadIsNotWritten(t *testing.T) {
	p := openPool(t, t.TempDir())
	r := mustCreate(t, p, "a", small)
	_, err := os.ReadFile(p.ImagePath(r.ID))
	must(t, err)
	if never, err := p.NeverWritten(r.ID); err != nil || !never {
		t.Errorf("NeverWritten after a read = %v, %v, want true", never, err)
	}
	f, err := os.OpenFile(p.ImagePath(r.ID), os.O_RDWR, 0)
	must(t, err)
	defer func() { _ = f.Close() }()
	for _, at := range []int64{0, 4096, small / 2} {
		_, err = f.WriteAt(make([]byte, 4096), at)
		must(t, err)
	}
	for size, want := range map[int64]int64{small: 3 * 4096, small / 2: 8192} {
		if total, err := written(f, size); err != nil || total != want {
			t.Errorf("written of %d bytes = %d, %v, want %d", size, total, err, want)
		}
	}
}
