package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheNamedTestsExist: CI runs the suites, not the rows, and the virtual machine's tests are not run with the rows, so
// a name that leads nowhere would not show.
func TestTheNamedTestsExist(t *testing.T) {
	catalogue, err := os.ReadFile("../../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`((?:cmd|internal|test)[a-z0-9/]*)\\.(Test[A-Za-z0-9]+)").FindAllStringSubmatch(string(catalogue), -1)
	const first = 100 // how many the catalogue has at least
	if len(names) < first {
		t.Errorf("docs/failures.md names %d tests, want at least %d", len(names), first)
	}
	for _, name := range names {
		if !strings.Contains(sourceOf(t, name[1]), "\nfunc "+name[2]+"(") {
			t.Errorf("docs/failures.md names %s, which is not in %s", name[2], name[1])
		}
	}
}

// sourceOf returns the tests of a package.
func sourceOf(t *testing.T, pkg string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../../..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	return source.String()
}
