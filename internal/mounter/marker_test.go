package mounter

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// plainFile is a sparse file in the place of a device.
type plainFile struct{ *os.File }

func (p plainFile) Flush() error { return p.Sync() }

func newFile(t *testing.T, size int64) plainFile {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk.img"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return plainFile{f}
}

func (p plainFile) put(t *testing.T, at int64, data string) {
	t.Helper()
	if _, err := p.WriteAt([]byte(data), at); err != nil {
		t.Fatal(err)
	}
}

func TestMarkerIsReadBackAndCleared(t *testing.T) {
	const size = 64 * mib
	f, k := newFile(t, size), marker{volume: "node/0123", filesystem: XFS, size: size}
	if _, err := readMarker(f, size); !errors.Is(err, errNoMarker) {
		t.Fatalf("readMarker(blank) = %v, want %v", err, errNoMarker)
	}
	if err := writeMarker(f, size, k); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(4 * size); err != nil {
		t.Fatal(err)
	}
	if got, err := readMarker(f, 4*size); got != k || err != nil {
		t.Errorf("readMarker after the device grew = %+v, %v, want %+v", got, err, k)
	}
	all := places(size)
	for _, at := range all[1:] { // one whole copy is enough
		f.put(t, at+100, "mkfs was here")
	}
	if got, err := readMarker(f, size); got != k || err != nil {
		t.Errorf("readMarker with one whole copy = %+v, %v, want %+v", got, err, k)
	}
	if err := clearMarker(f, size); err != nil {
		t.Fatal(err)
	}
	found, err := probe(t.Context(), f, size)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, markerSector)
	for i, at := range all {
		if _, err := f.ReadAt(buf, at); err != nil {
			t.Fatal(err)
		}
		if kept := firstNonZero(buf) >= 0; kept != (i > 0) {
			t.Errorf("after clearing, copy %d still has data: %v; only what mkfs wrote may stay (probe: %+v)", i, kept, found)
		}
	}
}

func TestMarkerThatIsNone(t *testing.T) {
	const at = 4096
	good, err := marker{volume: "v1", filesystem: Ext4, size: 1}.encode(at)
	if err != nil {
		t.Fatal(err)
	}
	newer := append([]byte{}, good...)
	newer[len(markerMagic)] = 2
	tests := map[string]struct {
		sector []byte
		at     int64
	}{
		"zeros":                       {make([]byte, markerSector), at},
		"a copy cut short":            {good[:100], at},
		"a copy from another place":   {good, at + 512},
		"a copy with one bit changed": {append(append([]byte{}, good[:60]...), append([]byte{good[60] ^ 1}, good[61:]...)...), at},
		"a version without checksum":  {newer, at},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if k, err := decodeMarker(tc.sector, tc.at); !errors.Is(err, errNoMarker) {
				t.Errorf("decodeMarker = %+v, %v, want %v", k, err, errNoMarker)
			}
		})
	}
	if _, err := (marker{volume: string(make([]byte, 500))}).encode(0); !errors.Is(err, fault.InvalidArgument) {
		t.Errorf("encode of a volume id of 500 bytes = %v, want %v", err, fault.InvalidArgument)
	}
}

func FuzzDecodeMarker(f *testing.F) {
	good, _ := marker{volume: "v1", filesystem: Ext4, size: 1 << 30}.encode(mib)
	f.Add(good, mib)
	f.Add([]byte(markerMagic), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, at int64) {
		k, err := decodeMarker(b, at)
		if err != nil {
			return
		}
		if again, err := k.encode(at); err != nil || string(again) != string(b[:markerSector]) {
			t.Errorf("decodeMarker(%x) = %+v, which encodes to %x, %v", b, k, again, err)
		}
	})
}

func TestMarkersOfTwoVolumesAreRefused(t *testing.T) {
	const size = 64 * mib
	f := newFile(t, size)
	if err := writeMarker(f, size, marker{"v1", Ext4, size}); err != nil {
		t.Fatal(err)
	}
	other, err := marker{"v2", Ext4, size}.encode(places(size)[1])
	if err != nil {
		t.Fatal(err)
	}
	f.put(t, places(size)[1], string(other))
	if _, err := readMarker(f, size); !errors.Is(err, fault.Precondition) {
		t.Errorf("readMarker = %v, want %v", err, fault.Precondition)
	}
}

// TestMarkerOutlivesMkfs measures what the comment on marker claims: a copy that mkfs has not
// touched when it is done was there at every moment that it could have been killed.
func TestMarkerOutlivesMkfs(t *testing.T) {
	sizes := []int64{16, 24, 33, 64, 110, 120, 129, 200, 257, 300, 320, 385, 513, 769, 1025, 1281, 2049, 3000, 4097, 8193, 20480, 102400}
	tests := map[string]struct {
		req FormatRequest
		min int64 // MiB that this mkfs needs
	}{
		"ext4":                            {FormatRequest{Filesystem: Ext4}, 16},
		"ext4 on zeros":                   {FormatRequest{Filesystem: Ext4, History: NeverWritten}, 16},
		"ext4 with blocks of 1 KiB":       {FormatRequest{Filesystem: Ext4, History: NeverWritten, MkfsOptions: []string{"-b", "1024"}}, 16},
		"ext4 with four times the inodes": {FormatRequest{Filesystem: Ext4, History: NeverWritten, MkfsOptions: []string{"-i", "4096"}}, 16},
		"xfs":                             {FormatRequest{Filesystem: XFS}, 300},
		"xfs with many groups":            {FormatRequest{Filesystem: XFS, MkfsOptions: []string{"-d", "agcount=16"}}, 1025},
	}
	const minLeft = 3
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := mkfsCommand(tc.req)
			program, err := exec.LookPath(cmd.Name)
			if err != nil {
				t.Fatalf("%v (an ordinary user's PATH may lack /usr/sbin; make test adds it)", err)
			}
			for _, size := range sizes {
				if size < tc.min {
					continue
				}
				size *= mib
				f := newFile(t, size)
				if err := writeMarker(f, size, marker{"v1", tc.req.Filesystem, size}); err != nil {
					t.Fatal(err)
				}
				run := exec.CommandContext(t.Context(), program, cmd.Args...)
				run.ExtraFiles = []*os.File{f.File}
				if out, err := run.CombinedOutput(); err != nil {
					t.Fatalf("%v on %d MiB: %v\n%s", cmd, size/mib, err, out)
				}
				left := countMarkers(t, f, size)
				if left < minLeft {
					t.Errorf("%d MiB: %d of %d copies are left, want %d or more", size/mib, left, len(places(size)), minLeft)
				}
				_ = os.Remove(f.Name())
			}
		})
	}
}

func countMarkers(t *testing.T, f plainFile, size int64) int {
	t.Helper()
	n, buf := 0, make([]byte, markerSector)
	for _, at := range places(size) {
		if _, err := f.ReadAt(buf, at); err != nil {
			t.Fatal(err)
		}
		if _, err := decodeMarker(buf, at); err == nil {
			n++
		}
	}
	return n
}

func TestPlacesStayInside(t *testing.T) {
	for _, size := range []int64{0, 1, mib, 4 * mib, 5 * mib, 16 * mib, gib, tib} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			for _, at := range places(size) {
				if at < probeEnds || at+markerSector > size-probeEnds {
					t.Errorf("places(%d) has %d, which is in the ends of the device", size, at)
				}
			}
		})
	}
}
