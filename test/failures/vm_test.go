package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheTestsOfTheVirtualMachineExist: they are not run with those of the rows, so a name that leads nowhere would
// not show.
func TestTheTestsOfTheVirtualMachineExist(t *testing.T) {
	catalogue, err := os.ReadFile("../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`test/(e2e/vm(?:/[a-z]+)?)\\.(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(catalogue), -1)
	if len(names) == 0 {
		t.Error("docs/failures.md names no test of test/e2e/vm")
	}
	for _, name := range names {
		if !strings.Contains(sourceOf(t, name[1]), "\nfunc "+name[2]+"(") {
			t.Errorf("docs/failures.md names %s, which is not in test/%s", name[2], name[1])
		}
	}
}

// sourceOf returns the tests of a package below test.
func sourceOf(t *testing.T, pkg string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", pkg, "*_test.go"))
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
