package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"a list without rows":                "- nothing here",
		"a row without a harm":               "- **F1** never",
		"a row with an unknown harm":         "- **F1** PITY: never",
		"a row without what must hold":       "- **F1** LOSS:",
		"a row of a chapter that is not":     "- **X1** LOSS: never",
		"a row that stands twice":            "- **F1** LOSS: never\n- **F1** LOSS: never",
		"a row that is named in the VM only": "## Faults in a virtual machine\n\n- a disk is pulled (F1)",
	} {
		t.Run(name, func(t *testing.T) {
			if rows, _, err := parse(text); err == nil {
				t.Errorf("parse = %+v, want an error", rows)
			}
		})
	}
}

// TestJoin: what the catalogue and the comments must have of each other.
func TestJoin(t *testing.T) {
	here, inVM, inCluster := test{"internal/mounter", "TestGate"}, test{"test/run/e2e/vm", "TestKills"}, test{"test/run/e2e/cluster", "TestLost"}
	named := func(row string, by test) claim { return claim{row, by, by.pkg + "/x_test.go:1"} }
	for name, c := range map[string]struct {
		inVM  []string
		found []claim
		want  string // a part of the error
	}{
		"a test here":                       {nil, []claim{named("F1", here)}, ""},
		"a test in a real Kubernetes":       {nil, []claim{named("F1", inCluster)}, ""},
		"one test named twice":              {nil, []claim{named("F1", here), named("F1", here)}, ""},
		"one in the virtual machine, too":   {[]string{"F1"}, []claim{named("F1", inVM), named("F1", here)}, ""},
		"no test":                           {nil, nil, "no test names the row F1"},
		"tests of the virtual machine only": {nil, []claim{named("F1", inVM)}, "only tests of make e2e-vm"},
		"a fault without its test":          {[]string{"F1"}, []claim{named("F1", here)}, "no test of make e2e-vm"},
		"a fault of no row":                 {[]string{"F2"}, []claim{named("F1", here)}, "the row F2, which does not exist"},
		"a comment of no row":               {nil, []claim{named("F1", here), named("F2", here)}, "x_test.go:1 names the row F2"},
	} {
		t.Run(name, func(t *testing.T) {
			rows := []row{{id: "F1", invariant: "never"}}
			err := join(rows, c.inVM, c.found)
			if c.want == "" && (err != nil || len(rows[0].tests) != len(c.inVM)+1) {
				t.Errorf("join = %v, %+v", err, rows)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("join = %v, want %q", err, c.want)
			}
		})
	}
}

func TestClaims(t *testing.T) {
	const head = "package x\n\nimport \"testing\"\n\n"
	for name, c := range map[string]struct{ source, want string }{
		"above a test":              {"// F1: why\nfunc TestA(t *testing.T) {}\n", "F1 TestA"},
		"several rows":              {"// F1, C2 and L10: why\n// and more\nfunc FuzzA(f *testing.F) {}\n", "F1 FuzzA, C2 FuzzA, L10 FuzzA"},
		"above a subtest":           {"func TestA(t *testing.T) {\n\t// A3: why\n\tt.Run(\"x\", nil)\n}\n", "A3 TestA"},
		"a row within the sentence": {"// What F1: says\nfunc TestA(t *testing.T) {}\n", ""},
		"above another function":    {"// F1: why\nfunc testA(t *testing.T) {}\n", "error"},
		"above nothing":             {"// F1: why\n\nfunc TestA(t *testing.T) {}\n", "error"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, folder := range []string{"cmd", "internal/x", "test"} {
				expect.NoError(t, os.MkdirAll(filepath.Join(root, folder), 0o700))
			}
			expect.NoError(t, os.WriteFile(filepath.Join(root, "internal/x/a_test.go"), []byte(head+c.source), 0o600))
			found, err := claims(root)
			var got []string
			for _, f := range found {
				if f.pkg != "internal/x" {
					t.Errorf("the package is %q", f.pkg)
				}
				got = append(got, f.row+" "+f.name)
			}
			if err != nil {
				got = []string{"error"}
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("claims = %v, %v, want %s", got, err, c.want)
			}
		})
	}
}

// TestReportCountsWhatDoesNotPassAsBroken: a test that does not run, is skipped or fails breaks its row.
func TestReportCountsWhatDoesNotPassAsBroken(t *testing.T) {
	rows := []row{{id: "F1", invariant: "never (a/b#1)", tests: []test{{"internal/mounter", "TestNoSuch"}}}}
	for want, results := range map[string]map[test]outcome{"MISSING": {}, "skip": {rows[0].tests[0]: "skip"}, "fail": {rows[0].tests[0]: "fail"}} {
		var out strings.Builder
		if err := report(rows, results, &out); err == nil || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "BROKEN   never\n") {
			t.Errorf("report = %v, printed:\n%s", err, &out)
		}
	}
}

// TestTheCatalogueAndTheTestsNameEachOther: each row has its tests, and each comment its row.
func TestTheCatalogueAndTheTestsNameEachOther(t *testing.T) {
	rows, err := read("../../../docs/contributing/failures.md", "../../..")
	expect.NoError(t, err)
	const first, pairs = 15 + 13 + 16 + 6 + 12 + 13, 470 // F, A, C, E, P and L rows, and what their tests prove; none is ever removed
	if len(rows) < first {
		t.Errorf("%d rows, want at least %d", len(rows), first)
	}
	named := 0
	for _, r := range rows {
		named += len(r.tests)
	}
	if named < pairs {
		t.Errorf("the tests name rows %d times, want at least %d", named, pairs)
	}
}
