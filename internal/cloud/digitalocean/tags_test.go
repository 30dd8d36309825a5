package digitalocean

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
)

func TestTagsBecomeTheCloudsWords(t *testing.T) {
	tests := map[string]struct {
		tag  cloud.Tag
		want string // empty: refused
	}{
		"key and value":                          {cloud.Tag{Key: "team", Value: "a"}, "team:a"},
		"no value":                               {cloud.Tag{Key: "team"}, "team"},
		"a value with a colon":                   {cloud.Tag{Key: "team", Value: "a:b"}, "team:a:b"},
		"a key with a colon":                     {cloud.Tag{Key: "te:am", Value: "a"}, ""},
		"a dot is refused":                       {cloud.Tag{Key: "team", Value: "a.b"}, ""},
		"a space is refused":                     {cloud.Tag{Key: "team", Value: "a b"}, ""},
		"as long as the cloud allows":            {cloud.Tag{Key: "team", Value: strings.Repeat("a", 250)}, "team:" + strings.Repeat("a", 250)},
		"longer is refused":                      {cloud.Tag{Key: "team", Value: strings.Repeat("a", 251)}, ""},
		"a claim's name keeps what it can":       {cloud.Tag{Key: "cloudblock-pvc", Value: "data.db-0"}, "cloudblock-pvc:data_db-0"},
		"a name in another script":               {cloud.Tag{Key: "cloudblock-pvc", Value: "том"}, "cloudblock-pvc:___"},
		"a claim's name that is long":            {cloud.Tag{Key: "cloudblock-pvc", Value: strings.Repeat("n", 253)}, "cloudblock-pvc:" + strings.Repeat("n", 240)},
		"the cluster's name is never rewritten":  {cloud.Tag{Key: "cloudblock-cluster", Value: "a.b"}, ""},
		"the cluster's name, where it is a word": {cloud.Tag{Key: "cloudblock-cluster", Value: "prod-1"}, "cloudblock-cluster:prod-1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tagRule.Write(tc.tag)
			if got != tc.want || (err != nil) != (tc.want == "") {
				t.Errorf("Write(%v) = %q, %v, want %q", tc.tag, got, err, tc.want)
			}
		})
	}
}

func FuzzTags(f *testing.F) {
	f.Add("cloudblock-pvc", "data.db-0")
	f.Add("team", "")
	f.Add("cloudblock-", "\xff\x00")
	allowed := regexp.MustCompile(`^[a-zA-Z0-9_\-:]{1,255}$`)
	f.Fuzz(func(t *testing.T, key, value string) {
		word, err := tagRule.Write(cloud.Tag{Key: key, Value: value})
		if err == nil && !allowed.MatchString(word) {
			t.Errorf("Write(%q, %q) = %q, which the cloud refuses", key, value, word)
		}
		if err == nil && tags.Read([]string{word})[0].Key != key {
			t.Errorf("the key of %q is not %q", word, key)
		}
	})
}
