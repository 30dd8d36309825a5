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
	files, err := filepath.Glob("../e2e/vm/*_test.go")
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
	catalogue, err := os.ReadFile("../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`test/e2e/vm\\.(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(catalogue), -1)
	if len(names) == 0 {
		t.Error("docs/failures.md names no test of test/e2e/vm")
	}
	for _, name := range names {
		if !strings.Contains(source.String(), "\nfunc "+name[1]+"(") {
			t.Errorf("docs/failures.md names %s, which is not in test/e2e/vm", name[1])
		}
	}
}
