package linode

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// legalLabel is what the cloud says of labels, without capitals and with a letter or digit at the end.
func legalLabel(label string) bool {
	return regexp.MustCompile(`^[a-z][a-z0-9_-]{0,30}[a-z0-9]$`).MatchString(label) && !strings.Contains(label, "--") && !strings.Contains(label, "__")
}

func FuzzLabels(f *testing.F) {
	f.Add("", "pvc-1")
	f.Add("a-", "--")
	f.Add("x", strings.Repeat("ü", 100))
	f.Add("", "clone-01234567-and-more-than-a-label-holds")
	f.Add("", "clone_01234567_0123456789abcdef") // an unfinished copy's
	f.Add("production-", "pvc-01234567-89ab-cdef-0123-456789abcdef")
	f.Add("a-", "-b")
	f.Add("", "a__b")
	f.Add("", "7seas")
	f.Add("", "a-")
	f.Add("", "a")
	f.Add("", "../../volumes/1")
	f.Fuzz(func(t *testing.T, prefix, name string) {
		if CheckPrefix(prefix) != nil || name == "" {
			return
		}
		c := &Cloud{prefix: prefix}
		if got := c.labelOf(name); !legalLabel(got) || got != c.labelOf(name) || isSnapshot(&volume{Label: got}) || copyLabel.MatchString(got) {
			t.Errorf("labelOf(%q) behind %q = %q", name, prefix, got)
		}
	})
}

func TestTheLabelOfACopyIsLegalAndItsOwn(t *testing.T) {
	one, two := Cloud{cluster: "one"}, Cloud{cluster: "two"}
	seen := map[string]bool{}
	for _, label := range []string{one.temporaryLabel("a", 1), one.temporaryLabel("a", 2), one.temporaryLabel("b", 1), two.temporaryLabel("a", 1)} {
		if !legalLabel(label) || seen[label] || len(label) != 31 {
			t.Errorf("%q is the label of a copy", label)
		}
		seen[label] = true
	}
	for _, label := range []string{one.snapshotLabel("a"), one.snapshotLabel("b"), two.snapshotLabel("a")} {
		if !legalLabel(label) || seen[label] || !isSnapshot(&volume{Label: label}) || one.labelOf(label) == label {
			t.Errorf("%q is the label of a snapshot, and %q that of a volume with this name", label, one.labelOf(label))
		}
		seen[label] = true
	}
	if !strings.HasPrefix(one.temporaryLabel("a", 1), one.copying()) || one.copying() == two.copying() {
		t.Errorf("copies of two clusters begin with %q and %q", one.copying(), two.copying())
	}
}

func TestPrefixesAndRegionsAreChecked(t *testing.T) {
	for prefix, ok := range map[string]bool{
		"": true, "prod-": true, "a": true, "abcdefghijk-": true, "abcdefghijkl-": false, "Prod-": false, "7-": false, "-": false, "a--": false, "a_": false, "a.": false,
	} {
		if err := CheckPrefix(prefix); (err == nil) != ok || !ok && fault.Of(err) != fault.InvalidArgument {
			t.Errorf("CheckPrefix(%q) = %v", prefix, err)
		}
	}
	for region, ok := range map[string]bool{"": true, "us-ord": true, "de-fra-2": true, "us-den-edge-1": true, "US": false, "us ord": false, "../x": false, "7": false} {
		if err := CheckRegion(region); (err == nil) != ok {
			t.Errorf("CheckRegion(%q) = %v", region, err)
		}
	}
}

func TestTagsBecomeTheCloudsWords(t *testing.T) {
	tests := map[string]struct {
		tag  cloud.Tag
		want string // empty: refused
	}{
		"key and value":                   {cloud.Tag{Key: "team", Value: "a.b c"}, "team:a.b c"},
		"a word":                          {cloud.Tag{Key: "team"}, "team"},
		"too short":                       {cloud.Tag{Key: "ab"}, ""},
		"as long as the cloud allows":     {cloud.Tag{Key: "team", Value: strings.Repeat("a", 45)}, "team:" + strings.Repeat("a", 45)},
		"longer":                          {cloud.Tag{Key: "team", Value: strings.Repeat("a", 46)}, ""},
		"a claim's name that is long":     {cloud.Tag{Key: "cloudblock-pvc-namespace", Value: strings.Repeat("n", 63)}, "cloudblock-pvc-namespace:" + strings.Repeat("n", 25)},
		"a volume's name in Kubernetes":   {cloud.Tag{Key: "cloudblock-pv", Value: "pvc-01234567-89ab-cdef-0123-456789abcdef"}, "cloudblock-pv:pvc-01234567-89ab-cdef-0123-456789ab"},
		"the hash of a name":              {cloud.Tag{Key: tags.Hash, Value: cloud.FullHash("a")}, "cloudblock-name-hash:" + cloud.FullHash("a")},
		"a cluster's name that is long":   {cloud.Tag{Key: tags.Cluster, Value: strings.Repeat("c", 32)}, ""},
		"a comma, which separates tags":   {cloud.Tag{Key: "team", Value: "a,b"}, ""},
		"a source, however long its id":   {cloud.Tag{Key: tags.FromVolume, Value: "123456789012345678"}, "cloudblock-source-volume:123456789012345678"},
		"letters that no terminal prints": {cloud.Tag{Key: "team", Value: "a\x00b"}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tagRule.Write(tc.tag)
			if got != tc.want || (err != nil) != (tc.want == "") || err != nil && CheckTags([]cloud.Tag{tc.tag}) == nil {
				t.Errorf("Write(%v) = %q, %v, want %q", tc.tag, got, err, tc.want)
			}
		})
	}
}

func TestRoutesHaveNoIds(t *testing.T) {
	for path, want := range map[string]string{
		"/v4/volumes": "/v4/volumes", "/v4/volumes/123": "/v4/volumes/{id}", "/v4/volumes/123/attach": "/v4/volumes/{id}/attach",
		"/v4/linode/instances/7/disks": "/v4/linode/instances/{id}/disks", "/v4/account/events": "/v4/account/events",
	} {
		if got := routeOf(path); got != want {
			t.Errorf("routeOf(%q) = %q, want %q", path, got, want)
		}
	}
}

// Whose a volume is says its tag, or, for a copy that is not finished, its label.
func TestAVolumeSaysWhoseItIs(t *testing.T) {
	c, other := &Cloud{cluster: "one"}, &Cloud{cluster: "two"}
	copying, theirs := c.temporaryLabel("clone", 7), other.temporaryLabel("clone", 7)
	for name, tc := range map[string]struct {
		label string
		tags  []string
		want  cloud.Mark
	}{
		"this cluster's":                     {"a", []string{"cloudblock-cluster:one"}, cloud.Mark{Driver: true, Cluster: "one"}},
		"in the capitals of an earlier tag":  {"a", []string{"cloudblock-cluster:ONE"}, cloud.Mark{Driver: true, Cluster: "one"}},
		"another cluster's":                  {"a", []string{"cloudblock-cluster:two"}, cloud.Mark{Driver: true, Cluster: "two"}},
		"a person's":                         {"a", []string{"team:a"}, cloud.Mark{}},
		"an unfinished copy":                 {copying, nil, cloud.Mark{Driver: true, Cluster: "one", Temporary: true}},
		"another cluster's unfinished copy":  {theirs, nil, cloud.Mark{Driver: true, Temporary: true}},
		"an unfinished copy with tags":       {copying, []string{"cloudblock-cluster:one"}, cloud.Mark{Driver: true, Cluster: "one", Temporary: true}},
		"a copy under the label with a mark": {theirs, []string{"cloudblock-cluster:one"}, cloud.Mark{Driver: true, Cluster: "one", Temporary: true}},
		"a snapshot":                         {c.snapshotLabel("a"), []string{"cloudblock-cluster:one", "cloudblock-snapshot-of:7"}, cloud.Mark{Driver: true, Cluster: "one"}},
		"a snapshot without its tags":        {c.snapshotLabel("a"), nil, cloud.Mark{Driver: true, Cluster: "one"}},
		"another cluster's snapshot":         {other.snapshotLabel("a"), nil, cloud.Mark{Driver: true}},
		"a label that only begins so":        {"clone-of-mine", nil, cloud.Mark{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.markOf(&volume{Label: tc.label, Tags: tc.tags}); got != tc.want {
				t.Errorf("markOf(%q, %q) = %+v, want %+v", tc.label, tc.tags, got, tc.want)
			}
		})
	}
}
