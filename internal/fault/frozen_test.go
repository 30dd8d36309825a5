package fault_test

import (
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// TestReasonsAreAsFrozen: alerts, runbooks and people's searches have the codes.
func TestReasonsAreAsFrozen(t *testing.T) {
	var codes []string
	for _, r := range fault.Reasons() {
		codes = append(codes, string(r))
	}
	golden.Names(t, "reasons.txt", codes)
}
