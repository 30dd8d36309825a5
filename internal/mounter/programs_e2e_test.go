//go:build e2e

package mounter_test

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"sync"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// programs runs the real programs and counts them.
type programs struct {
	under host.Runner
	mu    sync.Mutex
	count map[string]int
}

// counted counts what a Mounter runs by itself, or by way of another runner.
func counted(under ...host.Runner) *programs {
	return &programs{under: append(under, host.Programs{})[0], count: make(map[string]int)}
}

func (p *programs) Run(ctx context.Context, c host.Command) (host.Output, error) {
	p.mu.Lock()
	p.count[c.Name]++
	p.mu.Unlock()
	out, err := p.under.Run(ctx, c)
	if err == nil && out.ExitCode != 0 && (bytes.Contains(out.Stderr, []byte("in use")) || bytes.Contains(out.Stderr, []byte("busy"))) {
		// It has done nothing, and is tried again: a program that searches for a free loop device had this one.
		p.mu.Lock()
		p.count[c.Name]--
		p.mu.Unlock()
	}
	return out, err
}

// runs returns how often the programs of these names ran so far; without a name, every mkfs.
func (p *programs) runs(names ...string) (n int) {
	if len(names) == 0 {
		names = []string{"mkfs.ext4", "mkfs.xfs"}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		n += p.count[name]
	}
	return n
}

// must runs a program that has to succeed.
var must = expect.Run

// signature is what blkid finds on a device, or nothing.
func signature(t *testing.T, dev *loopDevice) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "blkid", "-p", "-o", "value", "-s", "TYPE", "-s", "PTTYPE", dev.Path()).Output()
	if exit := new(exec.ExitError); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 2) {
		t.Fatalf("blkid: %v", err)
	}
	return string(out)
}

// consistent checks an unmounted filesystem with its own checker, which must find nothing.
func consistent(t *testing.T, dev *loopDevice, fs mounter.Filesystem) {
	t.Helper()
	switch fs {
	case mounter.Ext4:
		must(t, "e2fsck", "-f", "-n", dev.Path())
	case mounter.XFS:
		must(t, "xfs_repair", "-n", dev.Path())
	}
}
