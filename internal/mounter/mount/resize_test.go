package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// E8: the kernel's refusal of a filesystem as it is does not block the mount of the next pod; any other failure may pass.
func TestARefusedGrowthIsNoReasonToWait(t *testing.T) {
	for errno, want := range map[unix.Errno]fault.Kind{
		unix.EPERM: fault.Precondition, unix.EINVAL: fault.Precondition, unix.EOPNOTSUPP: fault.Precondition, unix.ENOSPC: fault.Precondition,
		unix.EBUSY: fault.Unavailable, unix.EIO: fault.Unavailable,
	} {
		err := resizeError("/staging", fmt.Errorf("%w: %w", fault.Unavailable, errno))
		if fault.Of(err) != want || !errors.Is(err, errno) || errors.Is(err, errRefused) != (want == fault.Precondition) {
			t.Errorf("a growth that ends with %v = %v, want the kind %q", errno, err, want)
		}
	}
	expect.Kind(t, "a growth without an error", resizeError("/staging", nil), fault.None)
	for text, refused := range map[string]bool{unix.EIO.Error(): false, "No space left on device": true} {
		m := New(Config{Programs: said{ExitCode: 1, Stderr: []byte("xfs_growfs: XFS_IOC_FSGROWFSDATA xfsctl failed: " + text + "\n")}})
		if err := m.growXFS(t.Context(), "/staging"); fault.Of(err) != fault.Precondition || errors.Is(err, errRefused) != refused {
			t.Errorf("a growth of an xfs that ends with %q = %v, want it refused: %t", text, err, refused)
		}
	}
}

// E8: what mkfs.xfs leaves of 5 TiB is no growth; 64 blocks are one.
func TestTheRestOfAnXFSIsNoGrowth(t *testing.T) {
	f := fsSize{blocks: 5<<28 - 5, blockSize: 4096, rest: xfsMinGroup}
	for blocks, full := range map[int64]bool{f.blocks: true, 5 << 28: true, f.blocks + 64: false} {
		if got := f.full(mounter.XFS, blocks*f.blockSize); got != full || f.full(mounter.Ext4, blocks*f.blockSize) != (blocks == f.blocks) {
			t.Errorf("full(%d of %d blocks) = %t, want %t, and of ext4 only without a rest", f.blocks, blocks, got, full)
		}
	}
}

// said are programs that say this.
type said host.Output

func (s said) Run(context.Context, host.Command) (host.Output, error) { return host.Output(s), nil }

func TestExt4Size(t *testing.T) {
	b := make([]byte, 1024)
	if _, err := ext4Size(b); err == nil {
		t.Error("ext4Size(zeros) = nil, want an error")
	}
	copy(b[0x4:], []byte{0, 0, 4, 0}) // 262144 blocks
	b[0x18], b[0x38], b[0x39] = 2, 0x53, 0xef
	copy(b[0x20:], []byte{0, 0x80, 0, 0}) // 32768 blocks a group
	b[0x150] = 1                          // of no meaning without 64bit
	if got, err := ext4Size(b); err != nil || got != (fsSize{262144, 4096, 32768, false}) {
		t.Errorf("ext4Size = %+v, %v", got, err)
	}
	b[0x60] = ext64bit
	if got, err := ext4Size(b); err != nil || got.blocks != 1<<32+262144 {
		t.Errorf("ext4Size with 64bit = %+v, %v", got, err)
	}
}

func FuzzExtSuperblock(f *testing.F) {
	f.Add(bytes.Repeat([]byte{0x53, 0xef}, 512))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := ext4Size(append(b, make([]byte, 1024)...)); err == nil && (s.blocks <= 0 || s.blockSize < 1024 || s.rest <= 0) {
			t.Errorf("ext4Size = %+v", s)
		}
	})
}
