//go:build e2e

package node_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// refused checks an answer that is not OK, and that the mount table, the folder and the image are what
// they were. The image of a volume that is attached changes by itself: a filesystem writes when it likes.
func (v *volume) refused(t *testing.T, what string, do func() error, want codes.Code, words string) {
	t.Helper()
	mounts, files := mountTable(t, v.dir), v.files(t)
	var sum string
	attached := slices.ContainsFunc(loopsBelow(v.dir), func(loop string) bool { return backingFile(loop) == v.image })
	if !attached {
		sum = sumOf(t, v.image)
	}
	err := do()
	wantCode(t, what, err, want)
	if message := status.Convert(err).Message(); !strings.Contains(message, words) {
		t.Errorf("%s = %q, want it to say %q", what, message, words)
	}
	if got := mountTable(t, v.dir); got != mounts {
		t.Errorf("%s changed the mount table to\n%s\nfrom\n%s", what, got, mounts)
	}
	if got := v.files(t); got != files {
		t.Errorf("%s changed the folder to %q from %q", what, got, files)
	}
	if !attached && sumOf(t, v.image) != sum {
		t.Errorf("%s changed the volume", what)
	}
}

func (v *volume) files(t *testing.T) string { return listing(t, filepath.Dir(v.staging)) }

// F9: a staging path where something else is mounted is AlreadyExists, never OK.
func TestStagingPathThatHoldsSomethingElse(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	other := m.newVolume("ext4", 32*mib)
	other.ok(other.stage)
	tests := map[string]struct {
		prepare func(t *testing.T, v *volume)
		words   string
	}{
		"a mount of another volume": {func(t *testing.T, v *volume) {
			must(t, unix.Mount(other.staging, v.staging, "", unix.MS_BIND, ""))
		}, "not this volume"},
		"a tmpfs": {func(t *testing.T, v *volume) {
			must(t, unix.Mount("none", v.staging, "tmpfs", 0, "size=1m"))
		}, "tmpfs"},
		"a file": {func(t *testing.T, v *volume) {
			must(t, os.WriteFile(filepath.Join(v.staging, "lost"), []byte("x"), 0o600))
		}, "lost"},
	}
	for _, fs := range []string{"ext4", ""} {
		for name, tc := range tests {
			t.Run(name+" "+fs, func(t *testing.T) {
				v := m.newVolume(fs, 32*mib)
				tc.prepare(t, v)
				v.refused(t, "stage", func() error { return v.stage(t.Context()) }, codes.AlreadyExists, tc.words)
				if got := len(loopsBelow(m.dir)); got != 1 {
					t.Errorf("%d loop devices are left, want the other volume's alone", got)
				}
				mounts.Unmount(v.staging)
			})
		}
	}
	other.gone()
}

// F9: what is mounted fits the request or the answer is AlreadyExists.
func TestSameVolumeStagedInAnotherWay(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	v := m.newVolume("ext4", sizeFor("xfs"))
	v.ok(v.stage, v.publish)
	for name, c := range map[string]*csi.VolumeCapability{
		"another filesystem": mountCapability("xfs", oneNode),
		"read-only":          mountCapability("ext4", oneNodeRead),
		"a raw block device": blockCapability(oneNode),
	} {
		t.Run(name, func(t *testing.T) {
			w := *v
			w.capability = c
			v.refused(t, "stage", func() error { return w.stage(t.Context()) }, codes.AlreadyExists, "")
		})
	}
	w := *v
	w.staging += "-2"
	must(t, os.Mkdir(w.staging, 0o700))
	v.refused(t, "stage at a second path", func() error { return w.stage(t.Context()) }, codes.FailedPrecondition, v.staging)
	v.ok(v.stage)
	v.gone()

	b := m.newVolume("", 32*mib)
	b.ok(b.stage)
	w = *b
	w.capability = mountCapability("ext4", oneNode)
	b.refused(t, "stage of a raw block volume with a filesystem", func() error { return w.stage(t.Context()) }, codes.AlreadyExists, "raw block")
	b.gone()
}

// F12: with the staging path unmounted behind the driver's back, or never mounted, nothing is bound.
func TestPublishNeedsALiveStage(t *testing.T) {
	t.Parallel()
	for _, fs := range []string{"ext4", "xfs", ""} {
		t.Run("kind "+fs, func(t *testing.T) {
			m := newMachine(t, machineConfig{})
			v := m.newVolume(fs, sizeFor(fs))
			publish := func() error { return v.publish(t.Context()) }
			v.refused(t, "publish of what was never staged", publish, codes.FailedPrecondition, "stage")
			v.ok(v.stage)
			mounted := v.staging
			if fs == "" {
				mounted = filepath.Join(v.staging, "device")
			}
			must(t, mounts.Unmount(mounted))
			v.refused(t, "publish after somebody else's umount", publish, codes.FailedPrecondition, "stage")

			other := m.newVolume("ext4", 32*mib)
			other.ok(other.stage)
			must(t, unix.Mount(other.staging, v.staging, "", unix.MS_BIND, ""))
			v.refused(t, "publish from a mount of another volume", publish, codes.FailedPrecondition, "stage")
			must(t, mounts.Unmount(v.staging))
			other.gone()

			v.ok(v.stage, v.publish)
			v.gone()
		})
	}
}

// TestTargetThatHoldsSomethingElse: publish and unpublish leave it alone.
func TestTargetThatHoldsSomethingElse(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	other := m.newVolume("ext4", 32*mib)
	other.ok(other.stage)
	for _, fs := range []string{"ext4", ""} {
		for name, prepare := range map[string]func(t *testing.T, v *volume){
			"a mount of another volume": func(t *testing.T, v *volume) {
				must(t, os.Mkdir(v.target, 0o700))
				must(t, unix.Mount(other.staging, v.target, "", unix.MS_BIND, ""))
			},
			"a tmpfs": func(t *testing.T, v *volume) {
				must(t, os.Mkdir(v.target, 0o700))
				must(t, unix.Mount("none", v.target, "tmpfs", 0, "size=1m"))
			},
			"a folder with a file": func(t *testing.T, v *volume) {
				must(t, os.Mkdir(v.target, 0o700))
				must(t, os.WriteFile(filepath.Join(v.target, "f"), []byte("x"), 0o600))
			},
			"a file with content": func(t *testing.T, v *volume) { must(t, os.WriteFile(v.target, []byte("x"), 0o600)) },
		} {
			t.Run(name+" "+fs, func(t *testing.T) {
				v := m.newVolume(fs, 32*mib)
				v.ok(v.stage)
				prepare(t, v)
				v.refused(t, "publish", func() error { return v.publish(t.Context()) }, codes.AlreadyExists, v.target)
				v.refused(t, "unpublish", func() error { return v.unpublish(t.Context()) }, codes.FailedPrecondition, v.target)
				mounts.Unmount(v.target)
				must(t, os.RemoveAll(v.target))
				v.gone()
			})
		}
	}
	v := m.newVolume("ext4", 32*mib)
	v.ok(v.stage)
	v.target = filepath.Join(m.kubelet, "no", "such", "target")
	v.refused(t, "publish below a folder that does not exist", func() error { return v.publish(t.Context()) }, codes.InvalidArgument, "target_path")
	v.gone()
	other.gone()
}

// TestPublishTwiceWithAnotherMode: the same target with other arguments is AlreadyExists.
func TestPublishTwiceWithAnotherMode(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	for _, fs := range []string{"ext4", ""} {
		v := m.newVolume(fs, 32*mib)
		v.ok(v.stage, v.publish)
		v.refused(t, "publish read-only where it is published for writing", func() error {
			r := v.publishRequest()
			r.Readonly = true
			_, err := v.NodePublishVolume(t.Context(), r)
			return err
		}, codes.AlreadyExists, v.target)
		v.gone()
	}
}

// F11: unstage of a volume in use is an error, and the mount table stays as it was.
func TestUnstageOfWhatIsInUse(t *testing.T) {
	t.Parallel()
	for _, fs := range []string{"ext4", "xfs", ""} {
		t.Run("kind "+fs, func(t *testing.T) {
			m := newMachine(t, machineConfig{})
			v := m.newVolume(fs, sizeFor(fs))
			v.ok(v.stage, v.publish)
			mounts := mountTable(t, m.dir)
			wantCode(t, "unstage of a published volume", v.unstage(t.Context()), codes.FailedPrecondition)
			if got := mountTable(t, m.dir); got != mounts {
				t.Errorf("unstage changed the mount table to\n%s\nfrom\n%s", got, mounts)
			}
			v.ok(v.unpublish)
			if fs == "" {
				v.gone()
				return
			}
			f, err := os.Create(filepath.Join(v.staging, "open"))
			must(t, err)
			defer f.Close()
			mounts = mountTable(t, m.dir)
			if err := v.unstage(t.Context()); err == nil {
				t.Error("unstage with an open file = OK, want an error")
			}
			if got := mountTable(t, m.dir); got != mounts {
				t.Errorf("unstage changed the mount table to\n%s\nfrom\n%s", got, mounts)
			}
			must(t, f.Close())
			v.gone()
		})
	}
}

// F11: while a raw device is open, it is in use.
func TestUnstageWaitsForTheLastUserOfARawDevice(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	v := m.newVolume("", 32*mib)
	v.ok(v.stage, v.publish)
	f, err := os.OpenFile(loopsBelow(m.dir)[0], os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	v.ok(v.unpublish)
	if err := v.unstage(t.Context()); err == nil {
		t.Error("unstage of a device that is open = OK, want an error")
	}
	must(t, f.Close())
	v.gone()
}

// P7: if the unmount fails, the target and its content stay.
func TestUnpublishThatCannotUnmount(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	v := m.newVolume("ext4", 32*mib)
	v.ok(v.stage, v.publish)
	path := filepath.Join(v.target, "f")
	must(t, os.WriteFile(path, []byte(writtenBytes), 0o600))
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	mounts := mountTable(t, m.dir)
	for range 2 {
		if err := v.unpublish(t.Context()); err == nil {
			t.Error("unpublish of a busy target = OK, want an error")
		}
	}
	if got := mountTable(t, m.dir); got != mounts {
		t.Errorf("unpublish changed the mount table to\n%s\nfrom\n%s", got, mounts)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != writtenBytes {
		t.Errorf("the file reads %q, %v, want %q", got, err, writtenBytes)
	}
	must(t, f.Close())
	v.gone()
}

// TestUndoOnlyWhatIsOurs: a request that names one volume and the paths of another changes nothing.
func TestUndoOnlyWhatIsOurs(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	a, b := m.newVolume("ext4", 32*mib), m.newVolume("ext4", 32*mib)
	a.ok(a.stage, a.publish)
	for _, staged := range []bool{false, true} {
		if staged {
			b.ok(b.stage)
		}
		a.refused(t, "unpublish with another volume's id", func() error { return unpublishCall(b.id, a.target)(t.Context(), a) }, codes.FailedPrecondition, "not this volume")
		a.refused(t, "unstage with another volume's id", func() error { return unstageCall(b.id, a.staging)(t.Context(), a) }, codes.FailedPrecondition, a.staging)
		a.refused(t, "unpublish of a folder of the machine", func() error { return unpublishCall(b.id, filepath.Dir(a.staging))(t.Context(), a) }, codes.FailedPrecondition, filepath.Dir(a.staging))
	}
	a.refused(t, "publish with another volume's staging path", func() error {
		r := b.publishRequest()
		r.StagingTargetPath = a.staging
		_, err := b.NodePublishVolume(t.Context(), r)
		return err
	}, codes.FailedPrecondition, "not this volume")
	a.gone()
	b.gone()
}
