//go:build e2e

package mounter_test

import (
	"errors"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// F14: in the node's container the mounts of its host are invisible. A device that the host has mounted is not mounted a
// second time.
func TestDeviceThatIsMountedElsewhere(t *testing.T) {
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			dev, m, dir := newLoop(t, small), newMachine(), t.TempDir()
			req := format.Request{Volume: "v1", Filesystem: fs}
			m.formatted(t, dev, req)
			host := mounts.Separate(t.Context(), "", "sh", "-c", `mount -t "$1" "$2" "$3" && echo mounted && read -r line`,
				"sh", string(fs), dev.Path(), dir)
			in, err1 := host.StdinPipe()
			out, err2 := host.StdoutPipe()
			noError(t, errors.Join(err1, err2, host.Start()))
			if n, err := out.Read(make([]byte, 8)); err != nil || n == 0 {
				t.Fatalf("mount in another namespace: %v", err)
			}
			got, err := m.EnsureFormatted(t.Context(), dev, req)
			if !errors.Is(err, fault.Busy) {
				t.Errorf("EnsureFormatted = %q, %v, want %v", got, err, fault.Busy)
			}
			_ = in.Close()
			_ = host.Wait()
		})
	}
}
