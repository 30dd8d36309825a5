//go:build e2e

package node_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestParentThatIsSwappedForALink: between a check of a path and what is done there a folder on the way may become a
// symbolic link. Nothing is mounted, made or removed where the link leads.
func TestParentThatIsSwappedForALink(t *testing.T) {
	for _, fs := range []string{"ext4", ""} {
		t.Run(kindName(fs), func(t *testing.T) {
			m := newMachine(t, machineConfig{})
			v := m.newVolume(fs, 64*mib)
			v.ok(v.stage)
			outside := newDir(t)
			canary := filepath.Join(outside, filepath.Base(v.target)) // empty, so that a mount and a removal succeed
			if fs == "" {
				must(t, os.WriteFile(canary, nil, 0o600))
			} else {
				must(t, os.Mkdir(canary, 0o700))
			}
			folder, link := filepath.Dir(v.target), filepath.Join(m.dir, "swap")
			must(t, os.Symlink(outside, link))
			swap := func() error { return unix.Renameat2(unix.AT_FDCWD, folder, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE) }
			stop := make(chan struct{})
			var swapping sync.WaitGroup
			swapping.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if err := swap(); err != nil {
						t.Errorf("swap: %v", err)
						return
					}
				}
			})
			for round := range 300 {
				_ = v.publish(t.Context()) // many are refused, for the link
				if at := mountsBelow(t, outside); len(at) > 0 {
					t.Errorf("publish %d mounted at %v", round, at)
					break
				}
				_ = v.unpublish(t.Context())
				if _, err := os.Lstat(canary); err != nil {
					t.Errorf("unpublish %d: %v", round, err)
					break
				}
			}
			close(stop)
			swapping.Wait()
			if st := must1(os.Lstat(folder))(t); !st.IsDir() {
				must(t, swap())
			}
			v.ok(v.unpublish, v.publish)
			v.gone()
		})
	}
}

// TestKubeletFolderBehindALink: the path to the kubelet's folder may hold symbolic links; the mount table has none.
func TestKubeletFolderBehindALink(t *testing.T) {
	m := newMachine(t, machineConfig{linked: true})
	for _, fs := range []string{"xfs", ""} {
		v := m.newVolume(fs, sizeFor(fs))
		v.ok(v.stage, v.stage, v.publish, v.publish)
		if _, err := v.usage(t.Context(), v.target); err != nil {
			t.Errorf("usage = %v", err)
		}
		if _, err := v.expand(t.Context(), nil); err != nil {
			t.Errorf("expand = %v", err)
		}
		v.gone()
	}
	if left := mountsBelow(t, m.dir); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
}
