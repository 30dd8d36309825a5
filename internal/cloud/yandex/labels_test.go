package yandex

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestLabels(t *testing.T) {
	long := strings.Repeat("a", 64)
	tests := map[string]struct {
		tag  cloud.Tag
		want string
		kind fault.Kind
	}{
		"as it is":                           {cloud.Tag{Key: "team", Value: "infra"}, "infra", fault.None},
		"an empty value":                     {cloud.Tag{Key: "team"}, "", fault.None},
		"all marks":                          {cloud.Tag{Key: `a-_./\@0`, Value: `-_./\@0`}, `-_./\@0`, fault.None},
		"capitals in a value of the user":    {cloud.Tag{Key: "team", Value: "Infra"}, "", fault.InvalidArgument},
		"capitals in a key":                  {cloud.Tag{Key: "Team", Value: "infra"}, "", fault.InvalidArgument},
		"a key that begins with a digit":     {cloud.Tag{Key: "1team", Value: "infra"}, "", fault.InvalidArgument},
		"a key that is too long":             {cloud.Tag{Key: long, Value: "infra"}, "", fault.InvalidArgument},
		"a value that is too long":           {cloud.Tag{Key: "team", Value: long}, "", fault.InvalidArgument},
		"no key":                             {cloud.Tag{Value: "infra"}, "", fault.InvalidArgument},
		"a claim's name is made to fit":      {cloud.Tag{Key: "cloudblock-pvc", Value: "Data.Of:" + long}, ("data.of_" + long)[:63], fault.None},
		"letters of other scripts":           {cloud.Tag{Key: "cloudblock-pvc", Value: "том"}, "___", fault.None},
		"the cluster's id must fit as it is": {cloud.Tag{Key: tags.Cluster, Value: "Prod"}, "", fault.InvalidArgument},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := labelOf(tc.tag)
			if got != tc.want || fault.Of(err) != tc.kind {
				t.Errorf("labelOf(%+v) = %q, %v, want %q and the kind %q", tc.tag, got, err, tc.want, tc.kind)
			}
			if checked := CheckTags([]cloud.Tag{tc.tag}); (checked == nil) != (tc.kind == fault.None) {
				t.Errorf("CheckTags(%+v) = %v", tc.tag, checked)
			}
		})
	}
}

func TestTooManyLabels(t *testing.T) {
	owner := ownerOf("one")
	var tags []cloud.Tag
	for n := range 63 {
		tags = append(tags, cloud.Tag{Key: fmt.Sprintf("k%d", n)})
	}
	if _, err := owner.Labels("a", tags, cloud.Source{}); fault.Of(err) != fault.InvalidArgument {
		t.Errorf("63 labels in addition to the driver's own = %v, want a refusal", err)
	}
	got, err := owner.Labels("a", tags[:62], cloud.Source{})
	if err != nil || len(got) != 64 || !owner.MadeFor("a", got) || owner.MadeFor("b", got) || ownerOf("two").MadeHere(got) {
		t.Errorf("labels = %v, %v", got, err)
	}
}
