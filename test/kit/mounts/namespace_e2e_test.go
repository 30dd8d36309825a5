//go:build e2e

package mounts_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// A command in a separate namespace has a test's own mounts and no copies of the others'.
func TestSeparate(t *testing.T) {
	own, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{own, other} {
		expect.NoError(t, unix.Mount("none", dir, "tmpfs", 0, "size=1m"))
		t.Cleanup(func() { expect.NoError(t, mounts.Unmount(dir)) })
	}
	for keep, want := range map[string][]string{"": nil, own: {own}} {
		out, err := mounts.Separate(t.Context(), keep, "cat", "/proc/self/mountinfo").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if !strings.Contains(string(out), " / /proc ") {
			t.Errorf("the command has no mounts at all: %s", out)
		}
		for _, dir := range []string{own, other} {
			found := strings.Contains(string(out), " "+dir+" ")
			if found != (len(want) == 1 && want[0] == dir) {
				t.Errorf("with the mounts of %q kept, %s is mounted: %t", keep, dir, found)
			}
		}
	}
}
