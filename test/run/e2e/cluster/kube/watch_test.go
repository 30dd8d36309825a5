package kube

import (
	"slices"
	"strings"
	"testing"
)

func TestEach(t *testing.T) {
	for name, c := range map[string]struct {
		printed string
		want    []string
		good    bool
	}{
		"two objects":                {"{\"name\":\"a\"}\n{\"name\":\n\"b\"}\n", []string{"a", "b"}, true},
		"the last one is half there": {`{"name":"a"}{"name":"b`, []string{"a"}, true},
		"something else":             {`{"name":"a"} no such resource`, []string{"a"}, false},
		"nothing":                    {"", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			err := each(strings.NewReader(c.printed), func(m Meta) { got = append(got, m.Name) })
			if (err == nil) != c.good || !slices.Equal(got, c.want) {
				t.Errorf("each = %v, %v; want %v, good is %v", got, err, c.want, c.good)
			}
		})
	}
}
