//go:build e2e

package node_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// hidden is another mount of what is mounted at path, which this program cannot see. It stands for that of a program
// with mounts of its own: one for monitoring or backups that has the machine's folders without mountPropagation.
func hidden(t *testing.T, path string) (end func()) {
	t.Helper()
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	must(t, err)
	end = sync.OnceFunc(func() { must(t, unix.Close(fd)) })
	t.Cleanup(end)
	return end
}

// F11: while another mount namespace has the filesystem, unstage is no success, since the cloud would take the disk
// away from below it; but what the pod wrote is on the disk. A repeat says the same until the other has ended.
func TestUnstageWaitsForOtherMountNamespaces(t *testing.T) {
	t.Parallel()
	for _, fs := range filesystems {
		for _, remembered := range []bool{true, false} {
			name := fs
			if !remembered {
				name += ", staged by another driver"
			}
			t.Run(name, func(t *testing.T) {
				m := newCloudMachine(t, newDir(t))
				v := m.attach("v1", fs, sizeFor(fs))
				v.ok(v.stage, v.publish)
				end := hidden(t, v.staging)
				if !remembered {
					must(t, os.RemoveAll(m.records))
				}
				want := randomFile(t, filepath.Join(v.target, "data"), mib)
				v.ok(v.unpublish)
				wantCode(t, "unstage while another has it", v.unstage(t.Context()), codes.Aborted)
				if got := onOtherMachine(t, v, fs); got != want {
					t.Errorf("another machine would read %s, want %s", got, want)
				}
				wantCode(t, "its repeat", v.unstage(t.Context()), codes.Aborted)
				end()
				eventually(t, "unstage succeeds", func() bool { return v.unstage(t.Context()) == nil })
				v.ok(v.unstage)
				loop, err := os.Readlink(filepath.Join(m.dir, "by-id", "cloud_"+filepath.Base(m.dir)+"_v1"))
				must(t, err)
				alone, err := unix.Open(loop, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
				must(t, err)
				must(t, unix.Close(alone))
			})
		}
	}
}

// onOtherMachine is the sum of the file as one would read it who gets the disk as it is now.
func onOtherMachine(t *testing.T, v *volume, fs string) string {
	t.Helper()
	disk, at := filepath.Join(v.dir, "copy.img"), filepath.Join(v.dir, "other")
	sh(t, "cp", "--sparse=always", v.image, disk)
	options := "loop"
	if fs == "xfs" {
		options += ",nouuid"
	}
	must(t, os.Mkdir(at, 0o700))
	sh(t, "mount", "-t", fs, "-o", options, disk, at)
	defer func() { must(t, mounts.Unmount(at)) }()
	return sumOf(t, filepath.Join(at, "data"))
}
