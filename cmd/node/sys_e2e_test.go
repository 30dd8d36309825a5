//go:build e2e

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
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
			client, kill := p.start()
			defer kill()

			const message = "mount the host's /sys"
			want := http.StatusOK
			if !writable {
				want = http.StatusServiceUnavailable
			}
			if code, body := drivertest.Page(t, "http://"+p.http+"/readyz"); code != want || strings.Contains(body, message) == writable {
				t.Errorf("/readyz = %d %s, want %d", code, body, want)
			}

			store := openPool(t, dir)
			r, err := store.Create(t.Context(), pool.NewVolume{Name: "v", Size: 16 << 20})
			must(t, err)
			staging := filepath.Join(dir, "staging")
			must(t, os.Mkdir(staging, 0o700))
			_, err = client.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
				VolumeId: store.Handle(r.ID).String(), StagingTargetPath: staging, VolumeCapability: &csi.VolumeCapability{
					AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
					AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
				},
			})
			if !writable {
				if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), message) {
					t.Errorf("NodeStageVolume = %v, want %v", err, codes.FailedPrecondition)
				}
				return
			}
			must(t, err)
			_, err = client.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{
				VolumeId: store.Handle(r.ID).String(), StagingTargetPath: staging,
			})
			must(t, err)
		})
	}
}
