package cloudtest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Want fails the test unless the error has the kind and the words.
func Want(t *testing.T, err error, kind fault.Kind, words ...string) {
	t.Helper()
	if fault.Of(err) != kind || (err == nil) != (kind == fault.None) {
		t.Errorf("got %v, want the kind %q", err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// Until lets simulated time pass until the condition holds. It works inside synctest.Test only, where waiting is
// how the clock moves and takes no real time; outside of it synctest.Wait panics.
func Until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; <-time.After(time.Millisecond) {
		synctest.Wait()
		if holds() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen: %s", what)
		}
	}
}
