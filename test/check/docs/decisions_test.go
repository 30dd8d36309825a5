package docs_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	decision = regexp.MustCompile(`(?m)^## ([0-9]+)\. `)
	// mention is how code and manifests name a decision: the page and the number.
	mention = regexp.MustCompile(`docs/contributing/decisions/([a-z]+)\.md, ([0-9]+)\b`)
)

// TestDecisionsKeepTheirNumbers: each number is one decision on one page, as the index has it, none is missing, and what
// code names is there.
func TestDecisionsKeepTheirNumbers(t *testing.T) {
	folder := filepath.Join(root, "docs/contributing/decisions")
	index := read(t, filepath.Join(folder, "README.md"))
	pages, err := filepath.Glob(filepath.Join(folder, "*.md"))
	must(t, err)
	pageOf := map[string]string{} // by number
	for _, path := range pages {
		name := filepath.Base(path)
		var numbers []string
		for _, found := range decision.FindAllStringSubmatch(read(t, path), -1) {
			if other := pageOf[found[1]]; other != "" {
				t.Errorf("decision %s is in %s and in %s", found[1], other, name)
			}
			pageOf[found[1]] = name
			numbers = append(numbers, found[1])
		}
		if row := "](" + name + ") | " + strings.Join(numbers, " ") + " |\n"; name != "README.md" && !strings.Contains(index, row) {
			t.Errorf("the index lacks: %s", row)
		}
	}
	for n := 1; n <= max(51, len(pageOf)+1); n++ {
		if number := fmt.Sprint(n); pageOf[number] == "" && number != "18" {
			t.Errorf("decision %s has no heading", number)
		}
	}
	named := mentions(t)
	for _, place := range slices.Sorted(maps.Keys(named)) {
		if named := named[place]; pageOf[named[1]] != named[0] {
			t.Errorf("%s names decision %s of %s, which is not there", place, named[1], named[0])
		}
	}
}

// mentions are the page and the number of each decision that a file outside of the documents names.
func mentions(t *testing.T) map[string][2]string {
	t.Helper()
	found := map[string][2]string{}
	walk(t, func(path string) {
		if !slices.Contains([]string{".go", ".yaml", ".sh"}, filepath.Ext(path)) {
			return
		}
		for i, m := range mention.FindAllStringSubmatch(read(t, path), -1) {
			found[fmt.Sprintf("%s (%d)", rel(path), i)] = [2]string{m[1] + ".md", m[2]}
		}
	}, "cmd", "internal", "test", "deploy")
	if len(found) < 10 {
		t.Errorf("found only %d mentions of decisions", len(found))
	}
	return found
}
