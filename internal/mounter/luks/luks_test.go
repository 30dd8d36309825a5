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

// TestNameIsAsFrozen: a node program that was replaced while a volume was staged finds its mapping by the name.
func TestNameIsAsFrozen(t *testing.T) {
	for id, want := range map[string]string{
		"4711": "cloudblock-de650d61f5bd166a91f8ccec3158297d",
		"n1/default/0123456789abcdef0123456789abcdef": "cloudblock-202883f930702a7a3c5715c3f1f7605d",
	} {
		if got := luks.Name(id); got != want {
			t.Errorf("Name(%s) = %s, want %s", id, got, want)
		}
	}
}
