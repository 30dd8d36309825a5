package pools

import (
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

func TestFileNamesOfAVolume(t *testing.T) {
	id, other := pool.NewID(), pool.NewID()
	for name, want := range map[string]bool{
		string(id) + ".img": true, "cloudblock-" + string(id): true,
		"": false, string(id): false, ".img": false, string(other) + ".img": false, "cloudblock-" + string(other): false, string(id) + ".img.old": false,
		"cloudblock-" + string(id) + ".img": false, "../" + string(id) + ".img": false,
	} {
		if got := IsFileName(id, name); got != want {
			t.Errorf("IsFileName(%q, %q) = %t", id, name, got)
		}
	}
}
