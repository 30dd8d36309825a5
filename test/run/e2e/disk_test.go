//go:build e2e

package e2e

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// hostDisk makes a filesystem of its own below dir and returns where it is mounted, for a pool whose
// disk a test may fill. programs.Clean of dir takes it away.
func hostDisk(t *testing.T, dir, filesystem string, size int64) string {
	t.Helper()
	mountpoint, err := programs.Disk(t.Context(), dir, filesystem, size)
	noError(t, err)
	return mountpoint
}

var command = expect.Run

// fillUp writes a foreign file until the disk has not one byte left.
func fillUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	noError(t, err)
	defer f.Close()
	for chunk := 16 * int(mib); chunk >= 512; {
		if _, err = f.Write(make([]byte, chunk)); err == nil {
			err = f.Sync()
		}
		if errors.Is(err, unix.ENOSPC) {
			chunk /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
