package main

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The demo repeats Aborted as Kubernetes does, and no other refusal.
func TestAStepRepeatsAborted(t *testing.T) {
	for code, want := range map[codes.Code]int{codes.Aborted: 2, codes.FailedPrecondition: 1} {
		calls := 0
		s := &stage{out: &bytes.Buffer{}}
		err := s.step(t.Context(), "unstage", func() (string, error) {
			if calls++; calls == 1 {
				return "", status.Error(code, "in use")
			}
			return "unstaged", nil
		})
		if calls != want || (err == nil) != (code == codes.Aborted) {
			t.Errorf("a step that is answered with %s once = %v after %d calls, want %d", code, err, calls, want)
		}
	}
}
