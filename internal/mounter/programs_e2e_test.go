//go:build e2e

package mounter

import (
	"context"
	"os/exec"
	"sync"
	"testing"
)

// programs runs the real programs and counts them.
type programs struct {
	under Runner
	mu    sync.Mutex
	count map[string]int
}

// counted counts what a Mounter runs by itself, or by way of another runner.
func counted(under ...Runner) *programs {
	return &programs{under: append(under, commands{})[0], count: make(map[string]int)}
}

func (p *programs) Run(ctx context.Context, c Command) (Output, error) {
	p.mu.Lock()
	p.count[c.Name]++
	p.mu.Unlock()
	out, err := p.under.Run(ctx, c)
	if err == nil && out.ExitCode != 0 && saysBusy(out) {
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
func must(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// consistent checks an unmounted filesystem with its own checker, which must find nothing.
func consistent(t *testing.T, dev *loopDevice, fs Filesystem) {
	t.Helper()
	switch fs {
	case Ext4:
		must(t, "e2fsck", "-f", "-n", dev.Path())
	case XFS:
		must(t, "xfs_repair", "-n", dev.Path())
	}
}
