//go:build e2e

package luks_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/luks"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

type key string

func (k key) Reveal() string { return string(k) }

// secretive runs real programs and fails the test when the passphrase is in what other users of the machine can see of them.
type secretive struct {
	t      *testing.T
	secret string
}

func (r secretive) Run(ctx context.Context, c host.Command) (host.Output, error) {
	if slices.ContainsFunc(c.Args, func(a string) bool { return strings.Contains(a, r.secret) }) {
		r.t.Errorf("the passphrase is an argument of %s %v", c.Name, c.Args[0])
	}
	cmd := exec.CommandContext(ctx, c.Name, c.Args...)
	cmd.Stdin, cmd.ExtraFiles = c.Stdin, c.Files
	var out host.Output
	stderr := new(strings.Builder)
	cmd.Stderr = stderr
	stdout, err := cmd.Output()
	out.Stdout, out.Stderr, out.ExitCode = stdout, []byte(stderr.String()), cmd.ProcessState.ExitCode()
	if err != nil && out.ExitCode < 0 {
		return out, err
	}
	if said := string(out.Stdout) + string(out.Stderr); strings.Contains(said, r.secret) {
		r.t.Errorf("%s %v prints the passphrase: %s", c.Name, c.Args[0], said)
	}
	return out, nil
}

// newDisk is a file in the place of a disk: cryptsetup reads and writes headers in files too.
func newDisk(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	must(t, f.Truncate(64<<20))
	return f
}

// opens reports whether a passphrase, byte by byte, opens the header.
func opens(t *testing.T, disk *os.File, passphrase string) bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "cryptsetup", "open", "--test-passphrase", "--type", "luks2", "--key-file", "-", disk.Name())
	cmd.Stdin = strings.NewReader(passphrase)
	return cmd.Run() == nil
}

// TestHeader: the header opens with all bytes of its key and with no other key, and its token is the volume's until it is
// removed.
func TestHeader(t *testing.T) {
	const secret = "s3cret\nwith lines\x00 and a zero\n"
	c := luks.New(secretive{t, "s3cret"}, "")
	disk := newDisk(t)
	if _, err := c.Unformatted(t.Context(), disk, "v1"); !errors.Is(err, fault.Precondition) {
		t.Errorf("Unformatted of a blank disk = %v, want %v", err, fault.Precondition)
	}
	must(t, c.Format(t.Context(), disk, "node/v\"1", key(secret)))
	for passphrase, want := range map[string]bool{secret: true, strings.TrimSpace(secret): false, "s3cret": false, "": false} {
		if got := opens(t, disk, passphrase); got != want {
			t.Errorf("the header opens with %q: %v, want %v", passphrase, got, want)
		}
	}
	for volume, want := range map[string]bool{"node/v\"1": true, "v1": false, "": false} {
		if got, err := c.Unformatted(t.Context(), disk, volume); got != want || err != nil {
			t.Errorf("Unformatted(%s) = %v, %v, want %v", volume, got, err, want)
		}
	}
	must(t, c.SetFormatted(t.Context(), disk))
	if got, err := c.Unformatted(t.Context(), disk, "node/v\"1"); got || err != nil {
		t.Errorf("Unformatted = %v, %v after SetFormatted", got, err)
	}
	if !opens(t, disk, secret) {
		t.Error("the header no longer opens")
	}
	head := make([]byte, 17<<20)
	if _, err := disk.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if strings.Contains(string(head), "s3cret") {
		t.Error("the passphrase is on the disk")
	}
}

// TestCallThatEnded: nothing begins for a call that has ended.
func TestCallThatEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	disk := newDisk(t)
	if err := luks.New(host.Programs{}, "").Format(ctx, disk, "v1", key("k")); !errors.Is(err, fault.Unavailable) {
		t.Errorf("Format = %v, want %v", err, fault.Unavailable)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(disk.Fd()), &st); err != nil || st.Blocks != 0 {
		t.Errorf("the disk has %d blocks, %v, want none written", st.Blocks, err)
	}
}
