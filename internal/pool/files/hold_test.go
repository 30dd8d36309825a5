package files

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// hold takes the shared lock that a loop device of this volume would hold.
func hold(t *testing.T, p *Pool, id pool.ID) (release func()) {
	t.Helper()
	f, err := os.Open(p.ImagePath(id))
	must(t, err)
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB))
	return func() { _ = f.Close() }
}
