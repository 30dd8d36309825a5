package format

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

// hungry is an e2fsck that takes all memory, and the node program with it, unless it is bounded.
type hungry struct{ t *testing.T }

func (h hungry) Run(_ context.Context, cmd host.Command) (host.Output, error) {
	if !cmd.Bounded {
		h.t.Error("the kernel ends the whole container")
	}
	return host.Output{ExitCode: 8, Stderr: []byte("Memory allocation failed")}, nil
}

// P15: a filesystem whose check takes more memory than the container has is refused, and the node program lives
// (Azure/local-csi-driver#458, Azure/AKS#4682).
func TestACheckThatNeedsTooMuchMemory(t *testing.T) {
	if err := New(hungry{t}).check(t.Context(), os.Stdin); fault.ReasonOf(err) != fault.FsckFailed {
		t.Errorf("check = %v, want %v", err, fault.FsckFailed)
	}
}

// A refusal names the disk in a way that still leads to it when the device was released.
func TestTheNameOfADiskOutlastsItsDevice(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{"loop3/loop/backing_file": "/pool/vol-1.img\n", "dm-4/dm/name": "vg-vol--1\n", "sda/size": "8\n"} {
		path := filepath.Join(dir, file)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	for device, want := range map[string]string{
		"/dev/loop3": "/pool/vol-1.img", "/dev/dm-4": "/dev/mapper/vg-vol--1", "/dev/sda": "/dev/sda", "/dev/gone": "/dev/gone",
	} {
		if got, isFile := lasting(dir, device); got != want || isFile != (device == "/dev/loop3") {
			t.Errorf("lasting(%s) = %s, %v, want %s", device, got, isFile, want)
		}
	}
}
