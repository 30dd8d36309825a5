package telemetry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/telemetry"
)

func TestTheOldestIsTheFirstThatHasNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set telemetry.Running
		want := func(age time.Duration) {
			t.Helper()
			if got := set.Oldest(); got != age {
				t.Errorf("Oldest = %s, want %s", got, age)
			}
		}
		want(0)
		first := set.Begin()
		time.Sleep(3 * time.Second) // of the fake clock
		second := set.Begin()
		time.Sleep(time.Second)
		want(4 * time.Second)
		first()
		first()
		want(time.Second)
		second()
		want(0)
	})
	var none *telemetry.Running
	none.Begin()()
}
