//go:build e2e

package mounter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
)

// luksFormat makes a header as package luks does, with a derivation of the key that takes no time.
func luksFormat(t *testing.T, run host.Runner, more ...string) func(context.Context, *os.File) error {
	t.Helper()
	args := append([]string{"luksFormat", "--batch-mode", "--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000",
		"--key-file", "-"}, more...)
	return func(ctx context.Context, disk *os.File) error {
		out, err := run.Run(ctx, host.Command{
			Name: "cryptsetup", Args: append(args, host.ChildFile), Files: []*os.File{disk}, Stdin: strings.NewReader("key"),
		})
		if err == nil && out.ExitCode != 0 {
			err = fmt.Errorf("%w: %s", fault.Unavailable, out.Tail())
		}
		return err
	}
}

var ours = []string{"--subsystem", format.LUKSSubsystem}

func encrypted(t *testing.T, run host.Runner) format.Request {
	return format.Request{Volume: "v1", Filesystem: mounter.LUKS, BlankCreated: true, Encrypt: luksFormat(t, run, ours...)}
}

// hasHeader proves that the device has a complete header with a key slot that the key opens.
func hasHeader(t *testing.T, dev *loopDevice) {
	t.Helper()
	out, err := host.Programs{}.Run(t.Context(), host.Command{
		Name: "cryptsetup", Args: []string{"open", "--test-passphrase", "--key-file", "-", host.ChildFile},
		Files: []*os.File{dev.file}, Stdin: strings.NewReader("key"),
	})
	if err != nil || out.ExitCode != 0 {
		t.Errorf("the key does not open the header: %v: %s", err, out.Tail())
	}
}

// TestEncrypt: a blank device gets a header once; whatever else is on a device stays, and so does a header.
func TestEncrypt(t *testing.T) {
	t.Parallel()
	m := newMachine()
	blank := newLoop(t, minEncrypted)
	m.formatted(t, blank, encrypted(t, host.Programs{}))
	hasHeader(t, blank)

	refused := map[string]struct {
		prepare func(dev *loopDevice)
		change  func(*format.Request)
		size    int64
		want    error // nil: it is used as it is
	}{
		"a header":                        {func(d *loopDevice) { noError(t, luksFormat(t, host.Programs{}, ours...)(t.Context(), d.file)) }, nil, 0, nil},
		"a header where no format may be": {func(d *loopDevice) { noError(t, luksFormat(t, host.Programs{}, ours...)(t.Context(), d.file)) }, func(r *format.Request) { r.Forbidden, r.HasContent = true, true }, 0, nil},
		"a filesystem":                    {func(d *loopDevice) { must(t, "mkfs.ext4", "-q", "-F", d.Path()) }, nil, 0, fault.Precondition},
		"random bytes":                    {func(d *loopDevice) { scribble(t, d, 20*mib) }, nil, 0, fault.Precondition},
		"a header, for a plain volume":    {func(d *loopDevice) { noError(t, luksFormat(t, host.Programs{}, ours...)(t.Context(), d.file)) }, func(r *format.Request) { r.Filesystem = mounter.Ext4 }, 0, fault.Precondition},
		"the second header only": {func(d *loopDevice) {
			noError(t, luksFormat(t, host.Programs{}, ours...)(t.Context(), d.file))
			zero(t, d, 512)
		}, nil, 0, fault.Precondition},
		"nothing, and read-only":          {nil, func(r *format.Request) { r.Forbidden = true }, 0, fault.Precondition},
		"nothing, and made as a copy":     {nil, func(r *format.Request) { r.HasContent = true }, 0, fault.Precondition},
		"nothing, and too small":          {nil, nil, minEncrypted - mib, fault.Precondition},
		"nothing, and smaller than asked": {nil, func(r *format.Request) { r.Size = minEncrypted + 1 }, 0, fault.Precondition},
	}
	for name, tc := range refused {
		t.Run(name, func(t *testing.T) {
			size := tc.size
			if size == 0 {
				size = minEncrypted
			}
			dev, req := newLoop(t, size), encrypted(t, host.Programs{})
			if tc.prepare != nil {
				tc.prepare(dev)
			}
			if tc.change != nil {
				tc.change(&req)
			}
			before := dev.sum()
			if _, err := m.EnsureFormatted(t.Context(), dev, req); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Errorf("EnsureFormatted = %v, want %v", err, tc.want)
			}
			if dev.sum() != before {
				t.Error("the device was changed")
			}
		})
	}
}

// TestKilledLuksFormat: F2 for the header. After a luksFormat that was killed the same volume gets its header with the
// record of its format, as long as blkid finds none, and no other volume does.
func TestKilledLuksFormat(t *testing.T) {
	t.Parallel()
	m, k := newMachine(), newKiller(t)
	m.formatted(t, newLoop(t, minEncrypted), encrypted(t, k))
	calls := k.calls(t)
	for i := range moments {
		at := 1 + i*(calls-1)/(moments-1)
		dev := newLoop(t, minEncrypted)
		k.at = at
		_, err := m.EnsureFormatted(t.Context(), dev, encrypted(t, k))
		if err == nil {
			t.Fatalf("killed at call %d of %d: EnsureFormatted = nil", at, calls)
		}
		before := dev.sum()
		id := signature(t, dev)
		for name, change := range map[string]func(*format.Request){
			"plain": func(r *format.Request) {
				r.Filesystem, r.Begun, r.History = mounter.Ext4, format.BegunBefore, format.Written
			},
			"a copy of it": func(r *format.Request) { r.HasContent = true },
			"read-only":    func(r *format.Request) { r.Forbidden = true },
		} {
			req := encrypted(t, host.Programs{})
			req.Begun = format.BegunOnDevice
			change(&req)
			if _, err := m.EnsureFormatted(t.Context(), dev, req); !errors.Is(err, fault.Precondition) {
				t.Errorf("killed at call %d: EnsureFormatted for %s = %v, want %v", at, name, err, fault.Precondition)
			}
		}
		again := encrypted(t, host.Programs{})
		again.Begun = format.BegunOnDevice
		switch _, err := m.EnsureFormatted(t.Context(), dev, again); {
		case id != "" && (!errors.Is(err, fault.FormatUnfinished) || dev.sum() != before):
			t.Errorf("killed at call %d of %d: EnsureFormatted with a header = %v, want %v", at, calls, err, fault.FormatUnfinished)
		case id == "" && err != nil:
			t.Errorf("killed at call %d of %d: EnsureFormatted again = %v", at, calls, err)
		case id == "":
			hasHeader(t, dev)
		}
		dev.detach()
	}
}

// TestNoted: what a note says about a device that reads as random bytes, as a blank one does behind encryption.
func TestNoted(t *testing.T) {
	t.Parallel()
	m := newMachine()
	noted := func(fs mounter.Filesystem, n format.Note) format.Request {
		return format.Request{Volume: "v1", Filesystem: fs, Note: n}
	}
	for _, fs := range someFilesystems() {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			dev := newLoop(t, small)
			scribble(t, dev, small)
			other := map[mounter.Filesystem]mounter.Filesystem{mounter.Ext4: mounter.XFS, mounter.XFS: mounter.Ext4}[fs]
			try := func(when string, req format.Request, want fault.Kind) {
				t.Helper()
				before := dev.sum()
				_, err := m.EnsureFormatted(t.Context(), dev, req)
				wantKind(t, when+": EnsureFormatted", err, want)
				if dev.sum() != before {
					t.Errorf("%s: the device was changed", when)
				}
			}
			try("no filesystem and no note", noted(fs, format.Formatted), fault.Precondition)
			readOnly := noted(fs, format.Unformatted)
			readOnly.Forbidden = true
			try("read-only", readOnly, fault.Precondition)
			if _, err := m.EnsureFormatted(t.Context(), dev, noted(fs, format.Unformatted)); err != nil {
				t.Fatalf("never formatted: %v", err)
			}
			consistent(t, dev, fs)
			try("formatted, and the note is still there", noted(fs, format.Unformatted), fault.None)
			try("another filesystem with the note", noted(other, format.Unformatted), fault.Precondition)
			try("another filesystem without", noted(other, format.Formatted), fault.Precondition)

			staging := filepath.Join(t.TempDir(), "staging")
			noError(t, m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: fs}))
			noError(t, os.WriteFile(filepath.Join(staging, "data"), []byte("x"), 0o600))
			takeDown(t, m, dev, staging)
			try("it was mounted", noted(fs, format.Formatted), fault.None)
			try("it was mounted, and the note is there", noted(fs, format.Unformatted), fault.None)
		})
	}
}

// TestKilledNotedMkfs: a mkfs behind encryption that was killed is made again while the note is there and blkid finds nothing or an
// unfinished xfs. A quarter of the moments of TestKilledMkfs is enough.
func TestKilledNotedMkfs(t *testing.T) {
	t.Parallel()
	for _, fs := range someFilesystems() {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			k := newKiller(t)
			for i, at := range killPoints(t, k, fs) {
				if i%4 != 0 {
					continue
				}
				m, dev := newMachine(), newLoop(t, small)
				scribble(t, dev, 24*mib) // TestNoted has random bytes throughout
				req := format.Request{Volume: "v1", Filesystem: fs, Note: format.Unformatted}
				k.at = at
				_, _ = newMachine(k).EnsureFormatted(t.Context(), dev, req) // random bytes decide about a call or two
				id := signature(t, dev)
				if _, err := m.EnsureFormatted(t.Context(), dev, req); err != nil {
					t.Fatalf("killed at call %d: EnsureFormatted again with %q = %v", at, id, err)
				}
				consistent(t, dev, fs)
				dev.detach()
			}
		})
	}
}

// minEncrypted is the smallest device that is encrypted.
const minEncrypted = 64 * mib

// scribble fills the device with random bytes up to a length.
func scribble(t *testing.T, dev *loopDevice, length int64) {
	t.Helper()
	random, err := os.Open("/dev/urandom")
	noError(t, err)
	defer func() { _ = random.Close() }()
	buf := make([]byte, 4*mib)
	for at := int64(0); at < length; at += int64(len(buf)) {
		_, err := random.Read(buf)
		noError(t, err)
		_, err = dev.file.WriteAt(buf[:min(int64(len(buf)), length-at)], at)
		noError(t, err)
	}
	noError(t, dev.file.Sync())
}

// zero clears the first bytes.
func zero(t *testing.T, dev *loopDevice, length int64) {
	t.Helper()
	_, err := dev.file.WriteAt(make([]byte, length), 0)
	noError(t, errors.Join(err, dev.file.Sync(), unix.IoctlSetInt(int(dev.file.Fd()), unix.BLKFLSBUF, 0)))
}
