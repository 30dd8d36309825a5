package ops_test

import (
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
)

// A12: a read of operations takes as long as an answer may, and is believed: an API that slow delays the end of an
// operation, and does not hide it.
func TestASlowReadShowsTheEndOfAnOperation(t *testing.T) {
	s := newSite(time.Second)
	s.read = ops.AnswerTimeout - time.Second
	simulated(t, s, func(t *testing.T, r *ops.Runner) {
		began := time.Now()
		if got, err := ops.Run(t.Context(), r, s.set(1)); err != nil || got != 1 {
			t.Errorf("Run = %d, %v, want that the change is seen to end", got, err)
		}
		if took := time.Since(began); took > 2*ops.AnswerTimeout {
			t.Errorf("it took %v", took)
		}
	})
}
