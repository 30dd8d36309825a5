package fault_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestOf(t *testing.T) {
	tests := map[string]struct {
		err  error
		want fault.Kind
	}{
		"no error carries no kind":                        {nil, fault.None},
		"a foreign error carries no kind":                 {context.Canceled, fault.None},
		"a bare kind is itself":                           {fault.Busy, fault.Busy},
		"the outermost kind wins":                         {fmt.Errorf("a: %w: %w", fault.NotFound, fmt.Errorf("b: %w", fault.Busy)), fault.NotFound},
		"a kind below a foreign error is found":           {fmt.Errorf("a: %w", errors.Join(context.Canceled, fault.Exhausted)), fault.Exhausted},
		"uncertain outranks a kind that stands before it": {fmt.Errorf("a: %w: %w", fault.NotFound, fault.Uncertain), fault.Uncertain},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := fault.Of(tc.err); got != tc.want {
				t.Errorf("Of(%v) = %q, want %q", tc.err, got, tc.want)
			}
		})
	}
}

type answer struct{}

func (answer) Error() string { return "the cloud answers 400" }
func (answer) FromCloud()    {}

func TestFromCloud(t *testing.T) {
	tests := map[string]struct {
		err  error
		want bool
	}{
		"no error is from nobody":         {nil, false},
		"a bare kind is the program's":    {fault.InvalidArgument, false},
		"an answer is the cloud's":        {answer{}, true},
		"an answer below a kind is found": {fmt.Errorf("a: %w: %w", fault.InvalidArgument, fmt.Errorf("b: %w", answer{})), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := fault.FromCloud(tc.err); got != tc.want {
				t.Errorf("FromCloud(%v) = %v, want %v", tc.err, got, tc.want)
			}
		})
	}
}
