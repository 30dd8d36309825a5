//go:build e2e

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/files"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// staged is a volume that the real node program has staged, and the pool for the controller's part.
type staged struct {
	*program
	store   *files.Pool
	id      pool.ID
	staging string
	client  csi.NodeClient
	kill    func()
}

// stagedVolume starts the program and stages a volume; fs empty means raw block.
func stagedVolume(t *testing.T, fs string) *staged {
	t.Helper()
	return stagedVolumeIn(t, tempDir(t), fs)
}

// stagedVolumeIn is stagedVolume in a folder that may have the disk of the pool.
func stagedVolumeIn(t *testing.T, dir, fs string) *staged {
	t.Helper()
	v := (&program{t: t, dir: dir, binary: build(t, dir)}).newVolume()
	must(t, v.stage(fs))
	return v
}

// newVolume starts the program and makes a volume, which is not staged.
func (p *program) newVolume() *staged {
	p.t.Helper()
	v := &staged{program: p, staging: filepath.Join(p.dir, "staging")}
	v.client, v.kill = v.start()
	v.store = openPool(p.t, p.dir)
	r, err := v.store.Create(p.t.Context(), pool.NewVolume{Name: "v", Size: 320 << 20})
	must(p.t, err)
	v.id = r.ID
	must(p.t, os.MkdirAll(v.staging, 0o700))
	return v
}

func (v *staged) stage(fs string) error {
	_, err := v.client.NodeStageVolume(v.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: v.store.Handle(v.id).String(), StagingTargetPath: v.staging, VolumeCapability: programs.Claim{Filesystem: fs}.Capability(),
	})
	return err
}

var command = expect.Run

// gone unstages the volume.
func (v *staged) gone() {
	v.t.Helper()
	_, err := v.client.NodeUnstageVolume(v.t.Context(), &csi.NodeUnstageVolumeRequest{
		VolumeId: v.store.Handle(v.id).String(), StagingTargetPath: v.staging,
	})
	must(v.t, err)
}

// kernelName returns the kernel's name of the volume's loop device.
func (v *staged) kernelName() string {
	v.t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	must(v.t, err)
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == v.store.ImagePath(v.id) {
			return strings.Split(file, "/")[3]
		}
	}
	v.t.Fatal("the volume has no loop device")
	return ""
}
