package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	flagLine   = regexp.MustCompile(`(?m)^  -([a-z-]+)`)
	metricName = regexp.MustCompile(`"(cloudblock_[a-z_]+)"`)
)

// TestEveryFlagIsInTheReference: what --help prints of either program is in docs/operations.md.
func TestEveryFlagIsInTheReference(t *testing.T) {
	reference := read(t, filepath.Join(root, "docs/operations.md"))
	for _, program := range []string{"./cmd/controller", "./cmd/node"} {
		cmd := exec.CommandContext(t.Context(), "go", "run", program, "--help")
		cmd.Dir = root
		help, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s --help: %v\n%s", program, err, help)
		}
		flags := flagLine.FindAllStringSubmatch(string(help), -1)
		if len(flags) < 10 {
			t.Errorf("%s --help shows only %d flags:\n%s", program, len(flags), help)
		}
		for _, flag := range flags {
			if !strings.Contains(reference, "| `--"+flag[1]+"`") && !strings.Contains(reference, "| `--"+flag[1]+" ") {
				t.Errorf("docs/operations.md does not list --%s of %s", flag[1], program)
			}
		}
	}
}

// TestEveryMetricIsInTheReference: each metric that the programs register is in docs/operations.md.
func TestEveryMetricIsInTheReference(t *testing.T) {
	reference := read(t, filepath.Join(root, "docs/operations.md"))
	metrics := map[string]bool{}
	for _, folder := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry os.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				for _, found := range metricName.FindAllStringSubmatch(read(t, path), -1) {
					metrics[found[1]] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(metrics) < 10 {
		t.Errorf("found only %v", metrics)
	}
	for name := range metrics {
		if !strings.Contains(reference, "`"+name+"`") {
			t.Errorf("docs/operations.md does not list %s", name)
		}
	}
}
