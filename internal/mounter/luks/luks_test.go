package luks_test

import (
	"regexp"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/luks"
)

// TestName: whatever an id holds, the name is one that device-mapper takes, and no two volumes share it.
func TestName(t *testing.T) {
	legal, seen := regexp.MustCompile(`^[a-z0-9-]{1,127}$`), map[string]string{}
	for _, id := range []string{"v1", "v2", "node-a/0123456789abcdef0123456789abcdef", "../v1", "4711-pvc-1", "4711"} {
		name := luks.Name(id)
		if !legal.MatchString(name) || seen[name] != "" {
			t.Errorf("Name(%s) = %s, which is illegal or that of %s", id, name, seen[name])
		}
		seen[name] = id
	}
}
