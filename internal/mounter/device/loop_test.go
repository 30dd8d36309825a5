package device

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// A pod whose volume's image was removed by hand can be taken down, and its device released: without the number its mounts would be
// taken for another volume's. An image that is there, or there again, goes first.
func TestTheNumberOfAVolumeWhoseImageWasRemoved(t *testing.T) {
	id, other := pool.ID(strings.Repeat("a", 32)), pool.ID(strings.Repeat("b", 32))
	for name, tc := range map[string]struct {
		files map[string]string
		want  uint64
		kind  fault.Kind
	}{
		"the image is there": {map[string]string{"loop1": id.ImageName()}, unix.Mkdev(7, 1), fault.None},
		"it was removed":     {map[string]string{"loop2": id.ImageName() + " (deleted)"}, unix.Mkdev(7, 2), fault.None},
		"it is there again":  {map[string]string{"loop2": id.ImageName() + " (deleted)", "loop3": id.ImageName()}, unix.Mkdev(7, 3), fault.None},
		"of another volume":  {map[string]string{"loop4": other.ImageName() + " (deleted)"}, 0, fault.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			sys := t.TempDir()
			for loop, file := range tc.files {
				dir := filepath.Join(sys, loop)
				write := func(name, text string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600) }
				must(t, os.MkdirAll(filepath.Join(dir, "loop"), 0o700))
				must(t, errors.Join(write("dev", "7:"+loop[4:]), write("loop/backing_file", "/pool/"+file)))
			}
			l := newLoop("n1", LoopConfig{SysDir: sys})
			if got, err := l.Number(Spec{Volume: "n1/default/" + string(id)}, id); got != tc.want || fault.Of(err) != tc.kind {
				t.Errorf("Number = %#x, %v, want %#x and the kind %q", got, err, tc.want, tc.kind)
			}
		})
	}
}
