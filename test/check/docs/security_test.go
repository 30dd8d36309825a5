package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`")
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(`)
)

// TestTheThreatModelNamesTests: each test that docs/security.md names exists.
func TestTheThreatModelNamesTests(t *testing.T) {
	exist := map[string]bool{}
	walk(t, func(path string) {
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range testFunc.FindAllStringSubmatch(read(t, path), -1) {
				exist[m[1]] = true
			}
		}
	}, "cmd", "internal", "test")
	named := namedTest.FindAllStringSubmatch(read(t, filepath.Join(root, "docs/security.md")), -1)
	if len(named) < 50 {
		t.Errorf("docs/security.md names only %d tests", len(named))
	}
	for _, m := range named {
		if !exist[m[1]] {
			t.Errorf("docs/security.md names %s, which does not exist", m[1])
		}
	}
}
