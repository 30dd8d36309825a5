//go:build e2e

package main

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
)

func TestMain(m *testing.M) { loops.Main(m) }

// L7: the program runs with /sys as containerd 1.6 and 1.7 mount it in privileged containers, and with a writable one,
// on loop devices that were never used (TestMain).
func TestReadOnlySys(t *testing.T) {
	for mode, writable := range map[string]bool{"ro": false, "rw": true} {
		t.Run(mode, func(t *testing.T) {
			dir := tempDir(t)
			p := &program{t: t, dir: dir, binary: build(t, dir), mounts: "mount -o remount,bind," + mode + " /sys"}
			v := p.newVolume()
			defer v.kill()

			const message = "mount the host's /sys"
			want := http.StatusOK
			if !writable {
				want = http.StatusServiceUnavailable
			}
			if code, body := drivertest.Page(t, "http://"+p.http+"/readyz"); code != want || strings.Contains(body, message) == writable {
				t.Errorf("/readyz = %d %s, want %d", code, body, want)
			}
			err := v.stage("")
			if !writable {
				if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), message) {
					t.Errorf("NodeStageVolume = %v, want %v", err, codes.FailedPrecondition)
				}
				return
			}
			must(t, err)
			v.gone()
		})
	}
}
