//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// TestKilledInsideMkfs: the node program dies while mkfs runs; the same call afterwards finishes the
// job, and mkfs of the dead program never touches a volume that is in use by then.
func TestKilledInsideMkfs(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			gate := filepath.Join(dir, "gate")
			pair := start(t, programs.Options{Dir: dir, NodePath: waitingMkfs(t, dir, "mkfs."+kind, gate)})
			v := create(t, pair, programs.Claim{Name: "mkfs-" + kind, Filesystem: kind, Size: 320 * mib})

			staged := make(chan error, 1)
			go func() { staged <- v.Stage(t.Context()) }()
			eventually(t, "mkfs is waiting", func() bool {
				_, err := os.Stat(gate + ".waiting")
				return err == nil
			})
			pair.Node.Kill()
			wantCode(t, "the stage that was cut off", <-staged, codes.Unavailable)
			if err := os.WriteFile(gate, nil, 0o600); err != nil { // whatever still waits may go on now
				t.Fatal(err)
			}
			must(t, pair.Node.Start)
			eventually(t, "the same call succeeds", func() bool { return v.Stage(t.Context()) == nil })
			must(t, v.Publish)
			write(t, data(v), 7, 16*mib)
			must(t, v.Unpublish, v.Unstage, v.Stage, v.Publish)
			wantBytes(t, data(v), 7, 16*mib)
			must(t, v.Unpublish, v.Unstage, v.Delete)
		})
	}
}

// waitingMkfs returns a PATH on which the named mkfs says that it was called and goes on only when
// the gate file is there.
func waitingMkfs(t *testing.T, dir, name, gate string) string {
	t.Helper()
	folder := filepath.Join(dir, "wrappers")
	noError(t, os.MkdirAll(folder, 0o755))
	script := fmt.Sprintf("#!/bin/sh\ntouch '%[1]s.waiting'\nwhile [ ! -e '%[1]s' ]; do sleep 0.05; done\nexec /sbin/%[2]s \"$@\"\n", gate, name)
	noError(t, os.WriteFile(filepath.Join(folder, name), []byte(script), 0o755))
	return folder + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin"
}
