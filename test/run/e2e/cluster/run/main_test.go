package main

import (
	"os"
	"strings"
	"testing"
)

func TestCount(t *testing.T) {
	for name, c := range map[string]struct {
		events string
		want   line
	}{
		"tests that hold others are not counted": {
			`{"Action":"pass","Test":"A/one"}
{"Action":"pass","Test":"A/two"}
{"Action":"pass","Test":"A"}
{"Action":"pass"}`, line{passed: 2}},
		"a failure inside is counted once": {
			`{"Action":"pass","Test":"A/one"}
{"Action":"fail","Test":"A/two"}
{"Action":"fail","Test":"A"}
{"Action":"fail"}`, line{passed: 1, failed: 1}},
		"a failure around passed steps is counted": {
			`{"Action":"pass","Test":"A/one"}
{"Action":"fail","Test":"A"}`, line{passed: 1, failed: 1}},
		"skips are counted": {`{"Action":"skip","Test":"A/one"}
{"Action":"pass","Test":"A"}`, line{skipped: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if got := count(strings.NewReader(c.events), &out); got != c.want {
				t.Errorf("count = %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		good bool
	}{
		"everything":        {nil, true},
		"one part":          {[]string{"-only", "upstream"}, true},
		"an unknown part":   {[]string{"-only", "downstream"}, false},
		"another cloud":     {[]string{"-cloud", "digitalocean", "-only", "patrol,upstream-patrol"}, true},
		"a third cloud":     {[]string{"-cloud", "linode", "-only", "story,upstream-patrol"}, true},
		"an installation":   {[]string{"-cloud", "yandex", "-only", "charts,install"}, true},
		"an old build":      {[]string{"-only", "upgrade", "-old", "v0.1.0"}, true},
		"Linode's":          {[]string{"-cloud", "linode", "-only", "vendor"}, true},
		"changed blocks":    {[]string{"-only", "changed-blocks"}, true},
		"a vendor's part":   {[]string{"-cloud", "yandex", "-only", "vendor"}, false},
		"to another zone":   {[]string{"-cloud", "yandex", "-only", "relocate"}, true},
		"a zone's part":     {[]string{"-cloud", "linode", "-only", "relocate"}, false},
		"another's part":    {[]string{"-cloud", "local", "-only", "patrol"}, false},
		"an unknown cloud":  {[]string{"-cloud", "moon"}, false},
		"a flag of no sort": {[]string{"-what"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(c.args); (err == nil) != c.good {
				t.Errorf("parse(%v) = %v, good is %v", c.args, err, c.good)
			}
		})
	}
}

func TestPartsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../../../docs/contributing/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	for cloud, all := range parts {
		for _, part := range all {
			if !strings.Contains(string(text), "`"+part+"`") {
				t.Errorf("docs/contributing/testing.md does not say what the part %s of %s does", part, cloud)
			}
		}
	}
}

// TestPartsAreInOrder: what takes the driver off comes after what needs it as it is, and nothing-left is last.
func TestPartsAreInOrder(t *testing.T) {
	want := "first story crowd populator health limits report commands charts sabotage patrol lost new-node install vendor upgrade upstream upstream-patrol nothing-left"
	if got := strings.Join(parts["linode"], " "); got != want {
		t.Errorf("the parts of linode are %s, want %s", got, want)
	}
}

func TestReport(t *testing.T) {
	var out strings.Builder
	err := report([]line{{part: "story", passed: 14}, {part: "upstream", passed: 3, failed: 1, err: errTest}}, &out)
	if err == nil || !strings.HasSuffix(out.String(), "\n17 passed, 1 failed\n") {
		t.Errorf("report = %v:\n%s", err, out.String())
	}
	if err := report([]line{{part: "story", err: errTest}}, &out); err == nil || !strings.HasSuffix(out.String(), "0 passed, 1 failed\n") {
		t.Errorf("a part that broke before its tests is taken for a success: %v\n%s", err, out.String())
	}
}

type testError string

func (e testError) Error() string { return string(e) }

const errTest = testError("broken")
