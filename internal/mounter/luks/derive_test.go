package luks

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// ownHeader is a header with a key that takes as much memory as the driver's own.
var ownHeader = strings.Replace(costlyHeader, "1048576", "65536", 1)

type text string

func (s text) Reveal() string { return string(s) }

// tight is a machine that has memory for the derivation of one key. No key opens its header.
type tight struct {
	t        *testing.T
	derive   func()
	deriving atomic.Int32
}

func (m *tight) Run(_ context.Context, c host.Command) (host.Output, error) {
	switch c.Args[0] {
	case "luksFormat", "open", "resize":
		if m.deriving.Add(1) > 1 {
			m.t.Errorf("%s %s began while another key was derived", c.Name, c.Args[0])
		}
		m.derive()
		m.deriving.Add(-1)
		return host.Output{ExitCode: exitNoKey}, nil
	}
	return host.Output{Stdout: []byte(ownHeader)}, nil
}

// plain is a file in the place of a disk.
type plain struct{ file *os.File }

func newPlain(t *testing.T, size int64) plain {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	expect.NoError(t, err)
	expect.NoError(t, f.Truncate(size))
	t.Cleanup(func() { _ = f.Close() })
	return plain{f}
}

func (p plain) File() *os.File               { return p.file }
func (p plain) Path() string                 { return p.file.Name() }
func (p plain) Number() uint64               { return 1 }
func (p plain) Size() (int64, error)         { return p.file.Seek(0, 2) }
func (p plain) Verify(context.Context) error { return nil }

// TestOneKeyAtATime: the keys of several volumes are derived one after the other, whatever for. With a wrong one opening
// is an invalid argument; growing is not, because the kubelet would take that for final.
func TestOneKeyAtATime(t *testing.T) {
	disk, smaller := newPlain(t, 2*sector), newPlain(t, sector)
	synctest.Test(t, func(t *testing.T) {
		c := New(&tight{t: t, derive: func() { time.Sleep(time.Second) }}, "")
		var all sync.WaitGroup
		begin := time.Now()
		for range 2 {
			all.Go(func() {
				if err := c.Format(t.Context(), disk.file, "v1", text("k")); err == nil {
					t.Error("Format = nil")
				}
			})
			all.Go(func() {
				if _, err := c.Open(t.Context(), disk, "v1", text("k"), OpenOptions{}); fault.Of(err) != fault.InvalidArgument || fault.ReasonOf(err) != fault.LUKSKey {
					t.Errorf("Open = %v, want %v for %q", err, fault.InvalidArgument, string(fault.LUKSKey))
				}
			})
			all.Go(func() {
				err := c.Grow(t.Context(), &Mapping{below: disk, file: smaller.file}, text("k"))
				if fault.Of(err) != fault.Precondition || fault.ReasonOf(err) != fault.LUKSKey {
					t.Errorf("Grow = %v, want %v for %q", err, fault.Precondition, string(fault.LUKSKey))
				}
			})
		}
		all.Wait()
		if took := time.Since(begin); took != 6*time.Second {
			t.Errorf("six keys took %v, want a second for each", took)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Grow(ended, &Mapping{below: disk, file: smaller.file}, text("k")); !errors.Is(err, fault.Unavailable) {
			t.Errorf("Grow for a call that has ended = %v, want %v", err, fault.Unavailable)
		}
	})
}

// L9: a cryptsetup whose disk hangs makes the other volumes wait, but not without end.
func TestKeyThatIsNeverDerived(t *testing.T) {
	disk := newPlain(t, sector)
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		c := New(&tight{t: t, derive: func() { <-answers }}, "")
		var hung sync.WaitGroup
		hung.Go(func() { _ = c.Format(t.Context(), disk.file, "v1", text("k")) })
		synctest.Wait()
		begin := time.Now()
		_, err := c.Open(t.Context(), disk, "v2", text("k"), OpenOptions{})
		if took := time.Since(begin); !errors.Is(err, fault.Unavailable) || took != maxWait {
			t.Errorf("Open behind it = %v after %v, want %v after %v", err, took, fault.Unavailable, maxWait)
		}
		close(answers)
		hung.Wait()
		if _, err := c.Open(t.Context(), disk, "v2", text("k"), OpenOptions{}); !errors.Is(err, fault.InvalidArgument) {
			t.Errorf("Open when the disk answers again = %v, want %v", err, fault.InvalidArgument)
		}
	})
}

// stuck is a machine in which a luksFormat never ends.
type stuck struct{ ends chan struct{} }

func (m stuck) Run(_ context.Context, c host.Command) (host.Output, error) {
	switch c.Args[0] {
	case "luksFormat":
		<-m.ends
	case "luksDump":
		return host.Output{Stdout: []byte(ownHeader)}, nil
	}
	return host.Output{ExitCode: exitNoKey}, nil
}

// L9: the other volumes do not wait until the disk of a cryptsetup answers again.
func TestSlotOfADiskThatHangs(t *testing.T) {
	disk := newPlain(t, sector)
	synctest.Test(t, func(t *testing.T) {
		machine := stuck{make(chan struct{})}
		c := New(machine, "")
		var hung sync.WaitGroup
		hung.Go(func() { _ = c.Format(t.Context(), disk.file, "v1", text("k")) })
		time.Sleep(maxHold)
		for range 2 {
			if _, err := c.Open(t.Context(), disk, "v2", text("k"), OpenOptions{}); !errors.Is(err, fault.InvalidArgument) {
				t.Errorf("Open while the disk of another volume hangs = %v, want %v", err, fault.InvalidArgument)
			}
		}
		close(machine.ends)
		hung.Wait()
		if _, err := c.Open(t.Context(), disk, "v2", text("k"), OpenOptions{}); !errors.Is(err, fault.InvalidArgument) {
			t.Errorf("Open when the disk answers again = %v, want %v", err, fault.InvalidArgument)
		}
	})
}

// costlyHeader is a header with a key that takes 1 GiB of memory, and no key opens it.
const costlyHeader = `{"segments": {"0": {"type": "crypt", "encryption": "aes-xts-plain64", "offset": "0", "size": "dynamic"}},
	"keyslots": {"0": {"type": "luks2", "key_size": 64, "af": {"type": "luks1", "stripes": 4000, "hash": "sha256"},
	"area": {"type": "raw", "size": "258048", "encryption": "aes-xts-plain64", "key_size": 64},
	"kdf": {"type": "argon2id", "time": 4, "memory": 1048576, "cpus": 4}}}}`

// endless is a machine in which a costly header's opening never ends by itself, and has made its mapping's name.
type endless struct {
	costly   func(*os.File) bool
	leftover atomic.Bool
}

func (m *endless) Run(ctx context.Context, c host.Command) (host.Output, error) {
	costly := len(c.Files) > 0 && m.costly(c.Files[0])
	switch {
	case c.Name == "dmsetup":
		m.leftover.Store(false)
		return host.Output{}, nil
	case c.Args[0] == "close":
		return host.Output{ExitCode: exitNoDevice}, nil
	case c.Args[0] == "luksDump" && costly:
		return host.Output{Stdout: []byte(costlyHeader)}, nil
	case c.Args[0] == "luksDump":
		return host.Output{Stdout: []byte(ownHeader)}, nil
	case costly:
		m.leftover.Store(true)
		<-ctx.Done()
		return host.Output{}, fault.Unavailable
	}
	return host.Output{ExitCode: exitNoKey}, nil
}

// L10: an opening is killed when its call has ended, or after two minutes, and what it made is removed. Meanwhile a
// header that costs no more than the driver's own is opened.
func TestOpeningWithoutEnd(t *testing.T) {
	costly, own, sys := newPlain(t, sector), newPlain(t, sector), t.TempDir()
	for what, ends := range map[string]time.Duration{"its call ends": time.Second, "no call ends": time.Hour} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				machine := &endless{costly: func(f *os.File) bool { return f == costly.file }}
				c := New(machine, host.Sysfs(sys))
				ctx, cancel := context.WithTimeout(t.Context(), ends)
				defer cancel()
				begin := time.Now()
				var opening sync.WaitGroup
				opening.Go(func() {
					_, err := c.Open(ctx, costly, "v1", text("k"), OpenOptions{})
					if took := time.Since(begin); fault.Of(err) != fault.Unavailable || took != min(ends, maxOpen) {
						t.Errorf("Open = %v after %v, want %v after %v", err, took, fault.Unavailable, min(ends, maxOpen))
					}
				})
				synctest.Wait()
				if _, err := c.Open(t.Context(), own, "v2", text("k"), OpenOptions{}); fault.ReasonOf(err) != fault.LUKSKey || time.Since(begin) != 0 {
					t.Errorf("Open meanwhile = %v after %v, want %q at once", err, time.Since(begin), string(fault.LUKSKey))
				}
				opening.Wait()
				if machine.leftover.Load() {
					t.Error("the mapping that the killed program left is still there")
				}
			})
		})
	}
}

// F15: a header without a key, as a cut luksFormat leaves it, never opens.
func TestAHeaderWithoutAKeyNamesTheWayOut(t *testing.T) {
	if _, err := (header{}).cost(); fault.ReasonOf(err) != fault.LUKSHeader || !strings.Contains(err.Error(), "delete its claim") {
		t.Errorf("cost = %v, want %q and what to do", err, string(fault.LUKSHeader))
	}
}

// nameTaken is a machine in which a mapping without a table has each name, until it is removed.
type nameTaken struct{ removed bool }

func (m *nameTaken) Run(_ context.Context, c host.Command) (host.Output, error) {
	switch {
	case c.Args[0] == "luksDump":
		return host.Output{Stdout: []byte(ownHeader)}, nil
	case c.Name == "dmsetup" && c.Args[0] == "remove" && !m.removed:
		m.removed = true
		return host.Output{}, nil
	case c.Name == "dmsetup":
		return host.Output{ExitCode: 1}, nil
	case !m.removed:
		return host.Output{ExitCode: exitBusy}, nil
	}
	return host.Output{ExitCode: exitNoKey}, nil
}

// TestNameOfAMappingWithoutATable: what a killed cryptsetup left is removed, and then the key decides.
func TestNameOfAMappingWithoutATable(t *testing.T) {
	c := New(&nameTaken{}, host.Sysfs(t.TempDir()))
	if _, err := c.Open(t.Context(), newPlain(t, sector), "v1", text("k"), OpenOptions{}); fault.Of(err) != fault.InvalidArgument {
		t.Errorf("Open = %v, want the answer of the second try, %v", err, fault.InvalidArgument)
	}
}

// TestNameIsAsFrozen: a node program that was replaced while a volume was staged finds its mapping by the name.
func TestNameIsAsFrozen(t *testing.T) {
	for id, want := range map[string]string{
		"4711": "cloudblock-de650d61f5bd166a91f8ccec3158297d",
		"n1/default/0123456789abcdef0123456789abcdef": "cloudblock-202883f930702a7a3c5715c3f1f7605d",
	} {
		if got := Name(id); got != want {
			t.Errorf("Name(%s) = %s, want %s", id, got, want)
		}
	}
}
