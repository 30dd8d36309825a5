// Package expect has what the tests of many packages expect of errors, of programs and of what happens soon.
package expect

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// NoError ends the test on an error.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Kind fails the test unless the error of what was done has the kind; fault.None: there is no error.
func Kind(t testing.TB, what string, err error, want fault.Kind) {
	t.Helper()
	switch {
	case want == fault.None && err != nil:
		t.Errorf("%s = %v, want no error", what, err)
	case fault.Of(err) != want:
		t.Errorf("%s = %v, want kind %q", what, err, want)
	}
}

// Reason fails the test unless the error of what was done has the reason.
func Reason(t testing.TB, what string, err error, want fault.Reason) {
	t.Helper()
	if got := fault.ReasonOf(err); got != want {
		t.Errorf("%s = %v has the reason %q, want %q", what, err, string(got), string(want))
	}
}

// Run runs a program that has to succeed, also after the end of the test's context, and returns what it has printed.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// Eventually waits for what has no event to wait for, at most 30 seconds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("it did not happen: %s", what)
		}
	}
}
