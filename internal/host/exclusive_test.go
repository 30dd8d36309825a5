package host

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// udev reads a device again when a descriptor for writing is closed, and each stage holds its device for a moment.
func TestADeviceIsHeldForReadingOnly(t *testing.T) {
	dev, err := os.Create(filepath.Join(t.TempDir(), "device"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dev.Close() }()
	x, err := Hold(t.Context(), dev)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = x.Close() }()
	flags, err := unix.FcntlInt(x.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDONLY {
		t.Errorf("the flags are %#x, %v, want read-only", flags, err)
	}
}
