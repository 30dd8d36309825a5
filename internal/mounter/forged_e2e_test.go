//go:build e2e

package mounter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// forgeries are the markers that a pod may write into the blocks of its own file.
var forgeries = map[string]func(t *testing.T, fs Filesystem, n int, at int64) []byte{
	"with the volume's id": func(t *testing.T, fs Filesystem, _ int, at int64) []byte {
		return encoded(t, marker{"v1", fs, small}, at)
	},
	"with another id": func(t *testing.T, fs Filesystem, _ int, at int64) []byte {
		return encoded(t, marker{"v2", fs, small}, at)
	},
	"with two ids": func(t *testing.T, fs Filesystem, n int, at int64) []byte {
		return encoded(t, marker{fmt.Sprintf("v%d", 1+n%2), fs, small}, at)
	},
	"of a later version": func(t *testing.T, fs Filesystem, _ int, at int64) []byte {
		b := encoded(t, marker{"v1", fs, small}, at)
		binary.LittleEndian.PutUint16(b[len(markerMagic):], markerVersion+1)
		binary.LittleEndian.PutUint32(b[markerSector-4:], crc32.Checksum(b[:markerSector-4], markerCRC))
		return b
	},
}

func encoded(t *testing.T, k marker, at int64) []byte {
	t.Helper()
	b, err := k.encode(at)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestForgedMarkerInAFile: a pod that may write below one folder of a mounted volume puts a marker into its
// file, in a block that lies where the node looks for markers. The volume keeps every byte and stays usable,
// after an unmount and after a power cut in its first mount.
func TestForgedMarkerInAFile(t *testing.T) {
	t.Parallel()
	for _, fs := range someFilesystems() {
		for name, forge := range forgeries {
			t.Run(string(fs)+" "+name, func(t *testing.T) {
				t.Parallel()
				programs := counted()
				m := New(Config{Runner: programs})
				dev, staging := staged(t, m, fs, small)
				if err := os.WriteFile(filepath.Join(staging, "db"), []byte("of another tenant"), 0o600); err != nil {
					t.Fatal(err)
				}
				must(t, "sync", filepath.Join(staging, "db"))
				forgeMarkers(t, dev, filepath.Join(staging, "x"), func(n int, at int64) []byte { return forge(t, fs, n, at) })
				cut := filepath.Join(t.TempDir(), "cut.img")
				must(t, "cp", "--sparse=always", dev.back, cut)
				takeDown(t, m, dev, staging)
				keepsItsData(t, m, dev, fs)
				dev.detach()
				keepsItsData(t, m, attach(t, cut), fs)
				if n := programs.runs(); n != 1 {
					t.Errorf("mkfs ran %d times, want the first one alone", n)
				}
			})
		}
	}
}

// forgeMarkers fills a file, finds out which of its blocks lie on the places of markers, and overwrites those
// in place.
func forgeMarkers(t *testing.T, dev *loopDevice, path string, forge func(n int, at int64) []byte) {
	t.Helper()
	const block, noCOW = 1024, 0x00800000 // FS_NOCOW_FL
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, noCOW); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	blocks := (int64(st.Bavail)*st.Bsize - 24*mib) / block
	chunk := make([]byte, 1024*block)
	for n := int64(0); n < blocks; n += 1024 {
		for i := range int64(1024) {
			copy(chunk[i*block:], fmt.Sprintf("block %016d.", n+i))
		}
		if _, err := f.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	back, err := os.Open(dev.back)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = back.Close() }()
	hits, tag := 0, make([]byte, 23)
	for _, at := range places(small) {
		var n int64
		if err := readFull(back, tag, at); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(string(tag), "block %d.", &n); err != nil {
			continue
		}
		if _, err := f.WriteAt(forge(hits, at), n*block); err != nil {
			t.Fatal(err)
		}
		hits++
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, at := range places(small) {
		b := make([]byte, markerSector)
		if err := readFull(back, b, at); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(b), markerMagic) {
			found++
		}
	}
	if found < 2 {
		t.Fatalf("%d places hold a forged marker (%d blocks of the file lie on one), so this test shows nothing", found, hits)
	}
}

// keepsItsData stages the volume as the next node does.
func keepsItsData(t *testing.T, m *Mounter, dev *loopDevice, fs Filesystem) {
	t.Helper()
	if got, err := m.EnsureFormatted(t.Context(), dev, FormatRequest{Volume: "v1", Filesystem: fs, Size: small, BlankCreated: true}); got != fs || err != nil {
		t.Fatalf("EnsureFormatted = %q, %v, want %s as it is", got, err, fs)
	}
	staging := filepath.Join(t.TempDir(), "again")
	if err := m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: fs}); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(staging, "db")); err != nil || string(data) != "of another tenant" {
		t.Errorf("the file says %q, %v", data, err)
	}
	takeDown(t, m, dev, staging)
}

// endsAfterMkfs is the runner of a node that dies when mkfs has ended.
type endsAfterMkfs struct{}

func (endsAfterMkfs) Run(ctx context.Context, cmd Command) (Output, error) {
	out, err := commands{}.Run(ctx, cmd)
	if strings.HasPrefix(cmd.Name, "mkfs.") && err == nil {
		return out, errors.New("the node is dead")
	}
	return out, err
}

// unclearedMarker is a device with a complete filesystem that has never been mounted and the marker of v1.
func unclearedMarker(t *testing.T, fs Filesystem) *loopDevice {
	t.Helper()
	dev := newLoop(t, small)
	_, err := New(Config{Runner: endsAfterMkfs{}}).EnsureFormatted(t.Context(), dev, FormatRequest{Volume: "v1", Filesystem: fs})
	if err == nil {
		t.Fatal("EnsureFormatted of a node that dies = nil")
	}
	if k, err := readMarker(dev.file, small); err != nil || k.volume != "v1" {
		t.Fatalf("readMarker = %+v, %v, want the marker of v1", k, err)
	}
	return dev
}

// TestForeignMount: a node dies before it clears the marker, and the filesystem is then mounted and filled by
// other means than this driver.
func TestForeignMount(t *testing.T) {
	t.Parallel()
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			dev, dir := unclearedMarker(t, fs), t.TempDir()
			must(t, "mount", "-t", string(fs), dev.Path(), dir)
			if err := os.WriteFile(filepath.Join(dir, "db"), []byte("of another tenant"), 0o600); err != nil {
				t.Fatal(err)
			}
			mustUnmount(t, dir)
			if k, err := readMarker(dev.file, small); err != nil || k.volume != "v1" {
				t.Fatalf("readMarker after the mount = %+v, %v: this test shows nothing", k, err)
			}
			programs := counted()
			keepsItsData(t, New(Config{Runner: programs}), dev, fs)
			if n := programs.runs(); n > 0 {
				t.Errorf("mkfs ran %d times, want none", n)
			}
		})
	}
}

// TestMarkerBesideAFilesystemThatWasNeverMounted: its mkfs may not have ended, or a power cut may have torn what
// it wrote. For the volume itself mkfs runs again, for any other volume the device is refused.
func TestMarkerBesideAFilesystemThatWasNeverMounted(t *testing.T) {
	t.Parallel()
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			dev, programs := unclearedMarker(t, fs), counted()
			m := New(Config{Runner: programs})
			got, err := m.EnsureFormatted(t.Context(), dev, FormatRequest{Volume: "v2", Filesystem: fs})
			if !errors.Is(err, fault.Precondition) || programs.runs() > 0 {
				t.Errorf("EnsureFormatted for another volume = %q, %v with %d mkfs, want %v and none", got, err, programs.runs(), fault.Precondition)
			}
			got, err = m.EnsureFormatted(t.Context(), dev, FormatRequest{Volume: "v1", Filesystem: fs, History: Written})
			if got != fs || err != nil || programs.runs() != 1 {
				t.Errorf("EnsureFormatted = %q, %v with %d mkfs, want %s with one", got, err, programs.runs(), fs)
			}
		})
	}
}

// TestDeviceThatIsMountedElsewhere: in the node's container the mounts of its host are invisible. A device that
// the host has mounted is not mounted a second time.
func TestDeviceThatIsMountedElsewhere(t *testing.T) {
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			dev, m, dir := newLoop(t, small), New(Config{}), t.TempDir()
			req := FormatRequest{Volume: "v1", Filesystem: fs}
			if _, err := m.EnsureFormatted(t.Context(), dev, req); err != nil {
				t.Fatal(err)
			}
			host := exec.CommandContext(t.Context(), "unshare", "-m", "--propagation", "private", "sh", "-c",
				// The copies of the mounts of other tests would keep their devices in use.
				`awk '$5 ~ "^'"$4"'/" { print $5 }' /proc/self/mountinfo | sort -r | xargs -r umount -l
				mount -t "$1" "$2" "$3" && echo mounted && read -r line`, "sh", string(fs), dev.Path(), dir, os.TempDir())
			in, err1 := host.StdinPipe()
			out, err2 := host.StdoutPipe()
			if err := errors.Join(err1, err2, host.Start()); err != nil {
				t.Fatal(err)
			}
			if n, err := out.Read(make([]byte, 8)); err != nil || n == 0 {
				t.Fatalf("mount in another namespace: %v", err)
			}
			got, err := m.EnsureFormatted(t.Context(), dev, req)
			if !errors.Is(err, fault.Busy) {
				t.Errorf("EnsureFormatted = %q, %v, want %v", got, err, fault.Busy)
			}
			_ = in.Close()
			_ = host.Wait()
		})
	}
}
