package main

import (
	"os"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	rows, err := parse("# x\n\n| id | harm | holds | source | tests |\n|---|---|---|---|---|\n" +
		"| F1 | LOSS | never | x | `internal/mounter.TestGate`, `test/run/e2e.TestGate/with a space` |\n" +
		"| F8 | LOSS | never | x | in a real Kubernetes: the part `lost` of [`make e2e-cluster`](c.md) |\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || len(rows[0].tests) != 2 || rows[0].tests[1] != (test{"test/run/e2e", "TestGate/with a space"}) {
		t.Errorf("parse = %+v", rows)
	}
	if rows[1].part != "lost" {
		t.Errorf("part = %q", rows[1].part)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"a table without rows":                  "nothing here",
		"a row that names no test":              "| F1 | LOSS | never | x | soon |",
		"a row with too few cells":              "| F1 | LOSS | never |",
		"a row that stands twice":               "| F1 | L | n | x | `internal/mounter.TestY` |\n| F1 | L | n | x | `internal/mounter.TestY` |",
		"a row with tests of the VM alone":      "| F1 | LOSS | never | x | `test/run/e2e/vm.TestKills` |",
		"a row whose test is not a test's name": "| F1 | LOSS | never | x | `internal/mounter.gate` |",
	} {
		t.Run(name, func(t *testing.T) {
			if rows, err := parse(text); err == nil {
				t.Errorf("parse = %+v, want an error", rows)
			}
		})
	}
}

// TestReportCountsAMissingTestAsBroken: a row that claims a test it does not have fails the command.
func TestReportCountsAMissingTestAsBroken(t *testing.T) {
	rows := []row{{id: "F1", invariant: "never", tests: []test{{"internal/mounter", "TestNoSuch"}}}}
	var out strings.Builder
	if err := report(rows, map[test]outcome{}, &out); err == nil || !strings.Contains(out.String(), "MISSING") {
		t.Errorf("report = %v, printed:\n%s", err, &out)
	}
}

// TestReportLeavesTheVMToItsOwnTarget: its tests do not run here, and do not count.
func TestReportLeavesTheVMToItsOwnTarget(t *testing.T) {
	here, inVM := test{"internal/pool/lvm", "TestKill"}, test{"test/run/e2e/vm", "TestKills"}
	rows := []row{{id: "L12", invariant: "a kill", tests: []test{inVM, here}}}
	if names := claimed(rows); len(names) != 1 || len(names[here.pkg]) != 1 {
		t.Errorf("claimed = %v, want %v alone", names, here)
	}
	var out strings.Builder
	if err := report(rows, map[test]outcome{here: passed}, &out); err != nil || !strings.Contains(out.String(), "make e2e-vm") {
		t.Errorf("report = %v, printed:\n%s", err, &out)
	}
}

// TestReportSaysWhereATestRan: a test over several clouds names its subtests by them.
func TestReportSaysWhereATestRan(t *testing.T) {
	results := map[test]outcome{}
	for _, name := range []string{"TestLife", "TestLife/pool_on_xfs", "TestLife/Linode", "TestLife/Linode/ext4", "TestLifetime/DigitalOcean", "TestOther"} {
		results[test{"test/run/e2e", name}] = passed
	}
	for named, want := range map[test]string{
		{"test/run/e2e", "TestLife"}:                     "linode local",
		{"test/run/e2e", "TestOther"}:                    "local",
		{"internal/cloud/linode", "TestContract"}:        "linode",
		{"internal/pool/files", "TestGrow"}:              "local",
		{"internal/cloud/middleware", "TestIdempotent"}:  "memory",
		{"internal/cloud/budget", "TestAFlood"}:          "memory",
		{"internal/mounter", "TestFormat"}:               "local",
		{"internal/driver/controller", "TestExpandSize"}: "memory",
	} {
		if got := strings.Join(backendsOf(named, results), " "); got != want {
			t.Errorf("backendsOf(%s) = %s, want %s", named, got, want)
		}
	}
}

// TestCatalogueIsReadable keeps the real table in the form that the command reads.
func TestCatalogueIsReadable(t *testing.T) {
	text, err := os.ReadFile("../../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	const first = 12 + 11 + 14 + 5 + 7 + 6 // F, A, C, E, P and L rows; none is ever removed
	if len(rows) < first {
		t.Errorf("%d rows, want at least %d", len(rows), first)
	}
	parts, err := os.ReadFile("../../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.part != "" && !strings.Contains(string(parts), "| `"+r.part+"` |") {
			t.Errorf("row %s names the part %s, which docs/cluster.md does not have", r.id, r.part)
		}
	}
}
