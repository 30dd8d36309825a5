package fault_test

import (
	"errors"
	"fmt"
	"regexp"
	"syscall"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

func TestReasonOf(t *testing.T) {
	tests := map[string]struct {
		err  error
		want fault.Reason
		kind fault.Kind
	}{
		"no error":                                     {nil, fault.NoReason, fault.None},
		"a kind alone":                                 {fault.Precondition, fault.NoReason, fault.Precondition},
		"a reason in the place of its kind":            {fmt.Errorf("attach: %w: %w", fault.NoSlot, answer{}), fault.NoSlot, fault.Exhausted},
		"the outermost reason":                         {fmt.Errorf("a: %w: %w", fault.NoZone, fault.NoSlot), fault.NoZone, fault.Exhausted},
		"a reason below another kind":                  {fmt.Errorf("a: %w: %w", fault.OutOfRange, fault.PoolFull), fault.PoolFull, fault.OutOfRange},
		"an explained error keeps its kind":            {fmt.Errorf("a: %w", fault.PoolFull.Explain(fault.OutOfRange)), fault.PoolFull, fault.OutOfRange},
		"an explanation outranks what it explains":     {fault.UnstageInUse.Explain(fmt.Errorf("a: %w", fault.DeviceInUse)), fault.UnstageInUse, fault.Busy},
		"no error is not explained":                    {fault.UnstageInUse.Explain(nil), fault.NoReason, fault.None},
		"access denied":                                {fmt.Errorf("a: %w", fault.Denied), fault.AccessDenied, fault.Denied},
		"a cloud that has no room":                     {fmt.Errorf("a: %w: %w", fault.Exhausted, answer{}), fault.Quota, fault.Exhausted},
		"a cloud that has no room for a growth":        {fmt.Errorf("%w: %w: %w", fault.OutOfRange, fault.Exhausted, answer{}), fault.Quota, fault.OutOfRange},
		"no room that no cloud speaks of":              {fault.Exhausted, fault.NoReason, fault.Exhausted},
		"a delay in which a cloud had no room":         {fmt.Errorf("%w: %w: %w", fault.Busy, fault.Exhausted, answer{}), fault.NoReason, fault.Busy},
		"an outcome that is not known, with a refusal": {fmt.Errorf("%w: %w", fault.NoSlot, fault.Uncertain), fault.NoReason, fault.Uncertain},
		"an outcome that nobody may find out":          {fmt.Errorf("%w: %w", fault.Uncertain, fault.Denied), fault.AccessDenied, fault.Uncertain},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, kind := fault.ReasonOf(tc.err), fault.Of(tc.err); got != tc.want || kind != tc.kind {
				t.Errorf("%v has the reason %q and the kind %q, want %q and %q", tc.err, got, kind, tc.want, tc.kind)
			}
			if is := errors.Is(tc.err, fault.PoolFull); is != (tc.want == fault.PoolFull) {
				t.Errorf("errors.Is(%v, PoolFull) = %t", tc.err, is)
			}
		})
	}
}

func TestTextBeginsWithTheCode(t *testing.T) {
	err := fmt.Errorf("the droplet has no free slot: %w", fault.NoSlot)
	if got, want := fault.Text(err), "CB-NO-SLOT: the droplet has no free slot: no room left"; got != want {
		t.Errorf("Text = %q, want %q", got, want)
	}
	err = fmt.Errorf("check: %w: %w\nmount: %w", fmt.Errorf("the volume is attached: %w", fault.Precondition), errors.New("to n1"), syscall.EINVAL)
	if got, want := fault.Text(err), "check: the volume is attached: to n1\nmount: invalid argument"; got != want {
		t.Errorf("Text = %q, want %q", got, want)
	}
	if got := fault.Text(fault.Busy); got != fault.Busy.Error() {
		t.Errorf("Text of a kind = %q", got)
	}
}

func TestEveryReasonHasAKindAndACode(t *testing.T) {
	code := regexp.MustCompile(`^CB(-[A-Z]+){1,3}$`)
	for _, r := range fault.Reasons() {
		if !code.MatchString(string(r)) || fault.Of(r) == fault.None {
			t.Errorf("%q is of the kind %q", r, fault.Of(r))
		}
	}
}

// TestReasonsAreAsFrozen: alerts, runbooks and people's searches have the codes.
func TestReasonsAreAsFrozen(t *testing.T) {
	var codes []string
	for _, r := range fault.Reasons() {
		codes = append(codes, string(r))
	}
	golden.Names(t, "reasons.txt", codes)
}
