//go:build e2e

package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An ext4 that was there before the call is checked before it is mounted. One that the call itself has made is not.
func TestAnExistingExt4IsCheckedBeforeItsMount(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	wrap(t, `echo "${0##*/}" >>`+ran+"\n"+`exec "$real" "$@"`, "mkfs.ext4", "e2fsck", "mount")
	m := newMachine(t, machineConfig{})
	v := m.newVolume("ext4", 32*mib)
	for _, want := range []string{"mkfs.ext4 mount", "e2fsck mount", "e2fsck mount"} {
		if err := v.stage(t.Context()); err != nil {
			t.Fatal(err)
		}
		names, err := os.ReadFile(ran)
		if got := strings.Join(strings.Fields(string(names)), " "); err != nil || got != want {
			t.Errorf("a stage ran %q, %v, want %q", got, err, want)
		}
		if err := v.unstage(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(ran); err != nil {
			t.Fatal(err)
		}
	}
}
