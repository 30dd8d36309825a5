package relocate

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A step that takes long is named after two seconds and then every half minute, and a short one never.
func TestWaitingSaysWhatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		w := &waiting{out: &out}
		w.step("a short step")
		time.Sleep(sayAfter - time.Millisecond)
		w.step("a long step")
		time.Sleep(sayAfter + 2*sayAgain)
		synctest.Wait()
		w.step("a long step") // the same one goes on
		time.Sleep(time.Second)
		w.end()
		time.Sleep(time.Hour)
		synctest.Wait()
		want := "waiting for a long step (2s)\nwaiting for a long step (32s)\nwaiting for a long step (1m2s)\n"
		if out.String() != want {
			t.Errorf("it says\n%swant\n%s", out.String(), want)
		}
	})
}
