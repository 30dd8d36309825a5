package tags_test

import (
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
)

func TestChange(t *testing.T) {
	for name, tc := range map[string]struct{ has, want, add, remove []string }{
		"nothing":                         {},
		"a new key":                       {has: []string{"a:1"}, want: []string{"b:1"}, add: []string{"b:1"}},
		"another value":                   {has: []string{"a:1", "b:1"}, want: []string{"a:2"}, add: []string{"a:2"}, remove: []string{"a:1"}},
		"what is there":                   {has: []string{"a:1"}, want: []string{"a:1"}},
		"what is there in other capitals": {has: []string{"Team:A"}, want: []string{"team:a"}},
		"another value in other capitals": {has: []string{"Team:A"}, want: []string{"team:b"}, add: []string{"team:b"}, remove: []string{"Team:A"}},
		"no value":                        {has: []string{"a:1"}, want: []string{"a"}, add: []string{"a"}, remove: []string{"a:1"}},
		"several values of a key":         {has: []string{"a:1", "a:2", "a:3"}, want: []string{"a:2"}, remove: []string{"a:1", "a:3"}},
		"half done":                       {has: []string{"a:1", "a:2"}, want: []string{"a:2"}, remove: []string{"a:1"}},
		"a key that begins another":       {has: []string{"ab:1"}, want: []string{"a:1"}, add: []string{"a:1"}},
		"keys that differ by capitals":    {has: []string{"a:1", "A:2"}, want: []string{"a:1", "A:2"}},
		"the driver's own stay":           {has: []string{"cloudblock-cluster:one"}, want: []string{"team:a"}, add: []string{"team:a"}},
	} {
		t.Run(name, func(t *testing.T) {
			add, remove := tags.Change(tc.has, tc.want)
			if !slices.Equal(add, tc.add) || !slices.Equal(remove, tc.remove) {
				t.Errorf("Change(%q, %q) = %q, %q, want %q, %q", tc.has, tc.want, add, remove, tc.add, tc.remove)
			}
		})
	}
}
