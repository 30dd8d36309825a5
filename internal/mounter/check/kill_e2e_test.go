//go:build e2e

package check

import (
	"errors"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// TestAKilledCheckLeavesNothing kills a check while it has the filesystem mounted and waits for the list of checksums, which is a named
// pipe. Neither a mount nor a loop device stays: the next check finds nothing in use.
func TestAKilledCheckLeavesNothing(t *testing.T) {
	if image := os.Getenv("CHECK_IMAGE"); image != "" { // the process that is killed
		Run(t.Context(), Request{Path: image, Checksums: os.Getenv("CHECK_LIST")})
		return
	}
	for _, fs := range []mounter.Filesystem{mounter.Ext4, mounter.XFS} {
		v := makeVolume(t, fs, mathrand.New(mathrand.NewPCG(4, 4)))
		v.mounted(t, func(dir string) { v.fill(t, dir) })
		list := filepath.Join(t.TempDir(), "list")
		must(t, unix.Mkfifo(list, 0o600))
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "CHECK_IMAGE="+v.image, "CHECK_LIST="+list)
		must(t, cmd.Start())
		noReader := func(err error) bool { return errors.Is(err, unix.ENXIO) }
		err := wait.Every(20*time.Millisecond, 3000).Retry(t.Context(), noReader, func() error {
			pipe, err := os.OpenFile(list, os.O_WRONLY|unix.O_NONBLOCK, 0)
			if err == nil {
				defer pipe.Close()
				image, openErr := os.Open(v.image)
				must(t, openErr)
				defer image.Close()
				if refuseAttached(image) == nil {
					t.Error("the check does not use the image")
				}
				err = cmd.Process.Kill()
			}
			return err
		})
		must(t, err)
		_ = cmd.Wait() // killed
		want(t, Run(t.Context(), Request{Path: v.image}), Intact)
	}
}
