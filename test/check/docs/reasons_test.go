package docs_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

var (
	reasonConst   = regexp.MustCompile(`(?m)^\t([A-Z][A-Za-z]+) +Reason = "(CB-[A-Z-]+)"$`)
	reasonHeading = regexp.MustCompile(`(?m)^### (CB-[A-Z-]+)$`)
	reasonCode    = regexp.MustCompile(`\bCB-[A-Z]+(?:-[A-Z]+)*`)
)

// TestEveryReasonIsRefusedTestedAndExplained: each reason of package fault is one that the programs refuse with, that a test
// provokes, and that has a heading in docs/troubleshooting.md. No other code is anywhere.
func TestEveryReasonIsRefusedTestedAndExplained(t *testing.T) {
	names := map[string]string{} // by code
	for _, found := range reasonConst.FindAllStringSubmatch(read(t, filepath.Join(root, "internal/fault/reason.go")), -1) {
		names[found[2]] = found[1]
	}
	if len(names) != len(fault.Reasons()) || len(names) < 20 {
		t.Fatalf("reason.go has %d reasons, and package fault %d", len(names), len(fault.Reasons()))
	}
	headings := map[string]int{}
	for _, found := range reasonHeading.FindAllStringSubmatch(read(t, filepath.Join(root, "docs/troubleshooting.md")), -1) {
		headings[found[1]]++
	}
	programs, tests := goSource(t)
	for _, r := range fault.Reasons() {
		code := string(r)
		name := regexp.MustCompile(`\bfault\.` + names[code] + `\b`)
		if headings[code] != 1 {
			t.Errorf("docs/troubleshooting.md has %d headings %s", headings[code], code)
		}
		if byKind := strings.Contains(read(t, filepath.Join(root, "internal/fault/reason.go")), "\t\treturn "+names[code]+"\n"); !byKind && !name.MatchString(programs) {
			t.Errorf("no program refuses with %s", code)
		}
		if !name.MatchString(tests) && !strings.Contains(tests, code) {
			t.Errorf("no test provokes %s", code)
		}
	}
	for _, file := range codeReaders(t) {
		for _, code := range reasonCode.FindAllString(read(t, file), -1) {
			if _, known := names[code]; !known && code != "CB-FORMAT" && code != "CB-DEVICE" { // prefixes in the rules
				t.Errorf("%s has the code %s, which no reason has", rel(file), code)
			}
		}
	}
}

// goSource returns the source of the programs, and that of the tests of their packages. Package fault itself is in neither.
func goSource(t *testing.T) (programs, tests string) {
	t.Helper()
	var both [2]strings.Builder
	walk(t, func(path string) {
		switch {
		case !strings.HasSuffix(path, ".go") || strings.Contains(path, "internal/fault/"):
		case strings.HasSuffix(path, "_test.go"), strings.Contains(path, "/cloudtest/"):
			both[1].WriteString(read(t, path))
		default:
			both[0].WriteString(read(t, path))
		}
	}, "cmd", "internal", "test/run/e2e")
	return both[0].String(), both[1].String()
}

// codeReaders are the files that name codes for people and machines.
func codeReaders(t *testing.T) []string {
	t.Helper()
	files := documents(t)
	walk(t, func(path string) { files = append(files, path) }, "cmd", "internal", "deploy")
	return files
}

// walk visits each file below some folders of the repository.
func walk(t *testing.T, visit func(path string), folders ...string) {
	t.Helper()
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				visit(path)
			}
			return err
		})
		must(t, err)
	}
}
