//go:build e2e

package mounter_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
)

// held runs real commands, but those named so on one device wait until they are let go.
type held struct {
	program, device string
	reached, letGo  chan struct{}
}

func (h held) Run(ctx context.Context, cmd host.Command) (host.Output, error) {
	if strings.HasPrefix(cmd.Name, h.program) && len(cmd.Files) > 0 && cmd.Files[0].Name() == h.device {
		h.reached <- struct{}{}
		<-h.letGo
	}
	return host.Programs{}.Run(ctx, cmd)
}

// TestMkfsIsNotBrokenOff is P2 at this level: a mkfs that hangs is not killed when its call ends, and
// keeps no other device from being worked on.
func TestMkfsIsNotBrokenOff(t *testing.T) {
	t.Parallel()
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			stuck, free := newLoop(t, small), newLoop(t, small)
			h := held{"mkfs.", stuck.Path(), make(chan struct{}, 1), make(chan struct{})}
			programs := counted(h)
			m := newMachine(programs)
			req := format.Request{Volume: "v1", Filesystem: fs}

			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := m.EnsureFormatted(ctx, stuck, req)
				ended <- err
			}()
			<-h.reached
			cancel()
			if _, err := m.EnsureFormatted(t.Context(), free, format.Request{Volume: "v2", Filesystem: fs}); err != nil {
				t.Errorf("EnsureFormatted of another volume = %v", err)
			}
			close(h.letGo)
			if err := <-ended; err != nil {
				t.Errorf("EnsureFormatted whose call has ended = %v, want the mkfs to be finished", err)
			}
			if _, err := m.EnsureFormatted(t.Context(), stuck, req); err != nil || programs.runs() != 2 {
				t.Errorf("EnsureFormatted after it = %v with %d mkfs, want one for each volume", err, programs.runs())
			}
		})
	}
}

// TestFsckIsNotBrokenOff holds e2fsck the same way, and looks that nothing is begun after it.
func TestFsckIsNotBrokenOff(t *testing.T) {
	t.Parallel()
	dev := newLoop(t, small)
	h := held{"e2fsck", dev.Path(), make(chan struct{}, 2), make(chan struct{})}
	m := newMachine(h)
	m.formatted(t, dev, format.Request{Volume: "v1", Filesystem: mounter.Ext4})
	req := mountRequest{Target: filepath.Join(t.TempDir(), "staging"), Filesystem: mounter.Ext4}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-h.reached; cancel(); close(h.letGo) }()
	if err := m.MountDevice(ctx, dev, req); !errors.Is(err, context.Canceled) {
		t.Fatalf("MountDevice whose call ends = %v, want %v", err, context.Canceled)
	}
	if _, ok, err := m.MountAt(req.Target); ok || err != nil {
		t.Errorf("MountAt = %v, %v: a call that has ended must not mount", ok, err)
	}
	wantKind(t, "MountDevice after it", m.MountDevice(t.Context(), dev, req), fault.None)
	takeDown(t, m, dev, req.Target)
}

// TestDamagedExt4IsNotMounted looks that what e2fsck -p cannot repair reaches the operator.
func TestDamagedExt4IsNotMounted(t *testing.T) {
	t.Parallel()
	m := newMachine()
	dev, staging := staged(t, m, mounter.Ext4, small)
	takeDown(t, m, dev, staging)
	must(t, "debugfs", "-w", "-R", "clri <2>", dev.Path()) // the root directory
	must(t, "debugfs", "-w", "-R", "set_super_value state 2", dev.Path())
	err := m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: mounter.Ext4})
	if !errors.Is(err, fault.FsckFailed) || !strings.Contains(err.Error(), dev.back+" by hand") {
		t.Errorf("MountDevice = %v, want %v with advice", err, fault.FsckFailed)
	}
	if _, ok, err := m.MountAt(staging); ok || err != nil {
		t.Errorf("MountAt = %v, %v, want nothing", ok, err)
	}
}
