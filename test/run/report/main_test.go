package main

import (
	"strings"
	"testing"
)

const module = "github.com/cloudblock-csi/cloudblock-csi/"

func TestReport(t *testing.T) {
	passes := `{"Action":"start","Package":"` + module + `a"}
{"Action":"output","Package":"` + module + `a","Test":"TestA","Output":"quiet\n"}
{"Action":"pass","Package":"` + module + `a","Test":"TestA"}
{"Action":"skip","Package":"` + module + `a","Test":"TestB"}
{"Action":"pass","Package":"` + module + `a","Elapsed":1.5}
`
	fails := `{"Action":"start","Package":"` + module + `b"}
{"Action":"output","Package":"` + module + `b","Test":"TestC","Output":"want 1\n"}
{"Action":"fail","Package":"` + module + `b","Test":"TestC"}
{"Action":"output","Package":"` + module + `b","Output":"panic: late\n"}
{"Action":"fail","Package":"` + module + `b","Elapsed":2}
`
	broken := `{"ImportPath":"` + module + `c","Action":"build-output","Output":"undefined: x\n"}
{"Action":"fail","Package":"` + module + `c","FailedBuild":"` + module + `c"}
`
	for name, tc := range map[string]struct {
		events string
		ok     bool
		says   []string
		not    string
	}{
		"all pass":               {passes, true, []string{"pass    1.5 s  a", "1 packages, 1 tests passed, 1 skipped, 0 failed"}, "quiet"},
		"a test fails":           {passes + fails, false, []string{"want 1\n", "panic: late", "fail    2.0 s  b", "2 failed"}, "quiet"},
		"a package is no Go":     {passes + broken, false, []string{"undefined: x", "fail    0.0 s  c", "1 failed"}, "quiet"},
		"go itself complains":    {"go: no such module\n", false, []string{"go: no such module", "0 packages"}, "passed, 1"},
		"the last line is cut":   {passes + `{"Action":"pa`, true, []string{`{"Action":"pa`}, "quiet"},
		"nothing has run at all": {"", false, []string{"0 packages, 0 tests passed"}, "pass "},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if got := run(strings.NewReader(tc.events), &out, nil); got != tc.ok {
				t.Errorf("run = %v, want %v", got, tc.ok)
			}
			for _, words := range tc.says {
				if !strings.Contains(out.String(), words) {
					t.Errorf("printed %q, want %q in it", out.String(), words)
				}
			}
			if strings.Contains(out.String(), tc.not) {
				t.Errorf("printed %q, want no %q in it", out.String(), tc.not)
			}
		})
	}
}
