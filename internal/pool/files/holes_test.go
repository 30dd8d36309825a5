package files

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/extents"
)

func TestFillLeavesNoHoles(t *testing.T) {
	const kib, mib = 1 << 10, 1 << 20
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	must(t, err)
	defer func() { _ = f.Close() }()
	must(t, unix.Fallocate(int(f.Fd()), 0, 0, 8*mib))
	for at := int64(0); at < 8*mib; at += 16 * kib {
		must(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, 4*kib))
	}
	must(t, disk{}.fill(t.Context(), f, 8*mib))
	if got, err := extents.Holes(f, 8*mib); err != nil || len(got) != 0 {
		t.Errorf("holes after fill = %v, %v, want none", got, err)
	}
}

// Zeros that were only read are not data.
func TestVolumeThatWasOnlyReadWasNeverWritten(t *testing.T) {
	p := openPool(t, t.TempDir())
	r := mustCreate(t, p, "a", small)
	_, err := os.ReadFile(p.ImagePath(r.ID))
	must(t, err)
	if never, err := p.NeverWritten(r.ID); err != nil || !never {
		t.Errorf("NeverWritten after a read = %v, %v, want true", never, err)
	}
}
