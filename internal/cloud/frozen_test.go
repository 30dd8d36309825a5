package cloud_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// TestNamesAreAsFrozen: the name of a request has to lead to the volume that an earlier version has created for it.
func TestNamesAreAsFrozen(t *testing.T) {
	rules := []struct {
		of   string
		rule cloud.NameRule
	}{
		{"short", cloud.NameRule{MinLen: 2, MaxLen: 32, StartLetter: true, EndAlnum: true, NoDoubles: true}},
		{"long", cloud.NameRule{MinLen: 1, MaxLen: 63, Underscore: true, StartLetter: true, EndAlnum: true}},
		{"capitals", cloud.NameRule{MinLen: 1, MaxLen: 64, Upper: true, StartLetter: true}},
	}
	var text strings.Builder
	for _, request := range []string{
		"pvc-0a1b2c3d-0000-1111-2222-333344445555", "data", "Data.Of--Shop_", "1st", "\u0442\u043e\u043c", strings.Repeat("x", 80), "a-h0123456789abcdef",
	} {
		fmt.Fprintf(&text, "%q has the hash %s\n", request, cloud.FullHash(request))
		for _, r := range rules {
			fmt.Fprintf(&text, "  %s: %s, with a prefix %s\n", r.of, r.rule.Map("", request), r.rule.Map("prod-", request))
		}
	}
	golden.Format(t, "names.txt", text.String())
}
