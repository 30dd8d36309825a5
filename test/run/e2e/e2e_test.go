//go:build e2e

// Package e2e drives both real programs over their sockets, on real loop devices. It needs root.
package e2e

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

var noError, eventually = expect.NoError, expect.Eventually

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
	noError(t, err)
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
	noError(t, err)
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
	noError(t, err)
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

// fill fills a file, or a device that exists, with bytes that depend on the seed, and syncs it.
func fill(path string, seed byte, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	block := pattern(seed)
	for done := int64(0); done < size; done += int64(len(block)) {
		if _, err := f.Write(block); err != nil {
			return fmt.Errorf("write %s at %d: %w", path, done, err)
		}
	}
	return errors.Join(f.Sync(), f.Close())
}

// holds checks what fill wrote.
func holds(path string, seed byte, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	want, got := pattern(seed), make([]byte, mib)
	for done := int64(0); done < size; done += mib {
		if _, err := io.ReadFull(f, got); err != nil {
			return fmt.Errorf("read %s at %d: %w", path, done, err)
		}
		if string(got) != string(want) {
			return fmt.Errorf("%s holds other bytes at %d than were written", path, done)
		}
	}
	return nil
}

func write(t *testing.T, path string, seed byte, size int64) {
	t.Helper()
	noError(t, fill(path, seed, size))
}

func wantBytes(t *testing.T, path string, seed byte, size int64) {
	t.Helper()
	noError(t, holds(path, seed, size))
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
	noError(t, unix.Statfs(path, &st))
	return int64(st.Blocks) * st.Bsize
}

// seesGrowth reports whether a filesystem fills a volume that has grown. Where ext4 cannot, it says so.
func seesGrowth(t *testing.T, kind string) bool {
	t.Helper()
	if kind != "ext4" || mounts.GrowsExt4(t) {
		return true
	}
	t.Log("the growth of ext4 is left out: this root lacks CAP_SYS_RESOURCE; it runs in the virtual machine (make e2e-vm)")
	return false
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
	left := loops.Below(pair.Pool())
	for _, folder := range []string{"volumes", "snapshots"} {
		files, err := os.ReadDir(filepath.Join(pair.Pool(), folder))
		noError(t, err)
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
