//go:build e2e

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/files"
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
	v := &staged{program: &program{t: t, dir: dir, binary: build(t, dir)}, staging: filepath.Join(dir, "staging")}
	v.client, v.kill = v.start()
	v.store = openPool(t, dir)
	r, err := v.store.Create(t.Context(), pool.NewVolume{Name: "v", Size: 320 << 20})
	must(t, err)
	v.id = r.ID
	must(t, os.MkdirAll(v.staging, 0o700))
	must(t, v.stage(fs))
	return v
}

func (v *staged) stage(fs string) error {
	capability := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	if fs != "" {
		capability.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fs}}
	}
	_, err := v.client.NodeStageVolume(v.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: v.store.Handle(v.id).String(), StagingTargetPath: v.staging, VolumeCapability: capability,
	})
	return err
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

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
