package pools

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/lvm"
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

// L9: doctor reports a volume group whose disk hangs.
func TestExamineAPoolThatHangs(t *testing.T) {
	host := lvm.New(1 << 30)
	group := groupOf(t, host)
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		host.Hook = func([]string) { <-hang }
		time.AfterFunc(time.Minute, func() { close(hang) })
		began := time.Now()
		wantReason(t, "Examine", Examine(t.Context(), group), fault.PoolUnusable)
		if took := time.Since(began); took > answerBound {
			t.Errorf("Examine took %s, want at most %s", took, answerBound)
		}
		time.Sleep(time.Minute) // what has waited ends
	})
}
