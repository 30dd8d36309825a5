//go:build e2e

// Package e2e drives both real programs over their sockets, on real loop devices. It needs root.
package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

var eventually = expect.Eventually

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// binaries returns the folder with the two programs: `make e2e` names it, and a plain `go test` finds
// what `make build` left.
func binaries(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("CLOUDBLOCK_BIN")
	if bin == "" {
		bin = "../../../bin"
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(bin, "cloudblock-node")); err != nil {
		t.Fatalf("%v: run `make build` first", err)
	}
	return bin
}

// folder returns a folder that programs.Clean empties of mounts and loop devices at the end, whatever
// the test did.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cloudblock-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := programs.Clean(dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return dir
}

// start starts both programs.
func start(t *testing.T, opts programs.Options) *programs.Pair {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = folder(t)
	}
	opts.Bin = binaries(t)
	pair, err := programs.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pair.Stop)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("node:\n%s\ncontroller:\n%s", pair.Node.LogTail(), pair.Controller.LogTail())
		}
	})
	return pair
}

func create(t *testing.T, pair *programs.Pair, claim programs.Claim) *programs.Volume {
	t.Helper()
	v, err := pair.Create(t.Context(), claim)
	if err != nil {
		t.Fatalf("create %s: %v", claim.Name, err)
	}
	return v
}

// must runs steps of a volume's life and ends the test at the first that fails.
func must(t *testing.T, steps ...func(context.Context) error) {
	t.Helper()
	for i, step := range steps {
		if err := step(t.Context()); err != nil {
			t.Fatalf("step %d: %v", i+1, err)
		}
	}
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s = %v (%v), want %v", what, got, err, want)
	}
}

// write fills a file, or a device that exists, with bytes that depend on the seed.
func write(t *testing.T, path string, seed byte, size int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := pattern(seed)
	for done := int64(0); done < size; done += int64(len(block)) {
		if _, err := f.Write(block); err != nil {
			t.Fatalf("write %s at %d: %v", path, done, err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// wantBytes checks what write wrote.
func wantBytes(t *testing.T, path string, seed byte, size int64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, got := pattern(seed), make([]byte, mib)
	for done := int64(0); done < size; done += mib {
		if _, err := f.Read(got); err != nil {
			t.Fatalf("read %s at %d: %v", path, done, err)
		}
		if string(got) != string(want) {
			t.Fatalf("%s holds other bytes at %d than were written", path, done)
		}
	}
}

// pattern returns one MiB that differs from seed to seed.
func pattern(seed byte) []byte {
	block := make([]byte, 0, mib)
	for i := 0; len(block) < int(mib); i++ {
		sum := sha256.Sum256([]byte{seed, byte(i), byte(i >> 8), byte(i >> 16)})
		block = append(block, sum[:]...)
	}
	return block
}

// filesystemSize returns what df would print.
func filesystemSize(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks) * st.Bsize
}

// seesGrowth reports whether a filesystem fills a volume that has grown. Where ext4 cannot, it says so.
func seesGrowth(t *testing.T, kind string) bool {
	t.Helper()
	if kind != "ext4" || canGrowMountedExt4(t) {
		return true
	}
	t.Log("the growth of ext4 is left out: this root lacks CAP_SYS_RESOURCE; it runs in the virtual machine (make e2e-vm)")
	return false
}

// canGrowMountedExt4 reports whether this process has CAP_SYS_RESOURCE, without which the kernel
// refuses to grow a mounted ext4.
func canGrowMountedExt4(t *testing.T) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// wantEmptyPool checks that no volume, snapshot, file or loop device is left.
func wantEmptyPool(t *testing.T, pair *programs.Pair) {
	t.Helper()
	if left := inPool(t, pair); len(left) > 0 {
		t.Errorf("left in the pool: %v", left)
	}
}

// inPool names the volumes, snapshots, files and loop devices of a pool.
func inPool(t *testing.T, pair *programs.Pair) []string {
	t.Helper()
	left := loopsBelow(t, pair.Pool())
	for _, folder := range []string{"volumes", "snapshots"} {
		files, err := os.ReadDir(filepath.Join(pair.Pool(), folder))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			left = append(left, filepath.Join(folder, f.Name()))
		}
	}
	return left
}

// kinds are the kinds of volume, by the name of the filesystem; empty is raw block.
var kinds = []string{"ext4", "xfs", ""}

func kindName(filesystem string) string {
	if filesystem == "" {
		return "block"
	}
	return filesystem
}

// data returns where a pod of this volume writes.
func data(v *programs.Volume) string {
	if v.Filesystem == "" {
		return v.Target
	}
	return filepath.Join(v.Target, "data")
}

func name(parts ...any) string { return fmt.Sprint(parts...) }
