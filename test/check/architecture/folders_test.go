package architecture_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxChain is how many folders a chain of imports may have: a reader who follows a request down has to know them all.
const maxChain = 7

// TestFoldersFormNoCircle: the folders directly below cmd, internal and internal/cloud import each other in one direction,
// and the longest chain is short. The reference backend and the suite are no part of a program.
func TestFoldersFormNoCircle(t *testing.T) {
	imports := map[string][]string{}
	for _, pkg := range list(t, "./cmd/...", "./internal/...") {
		from := folderOf(pkg.ImportPath)
		for _, imported := range pkg.Imports {
			if to := folderOf(imported); to != "" && to != from && !slices.Contains(imports[from], to) {
				imports[from] = append(imports[from], to)
			}
		}
	}
	longest := map[string][]string{}
	var chain func(folder string, above []string) []string
	chain = func(folder string, above []string) []string {
		if i := slices.Index(above, folder); i >= 0 {
			t.Fatalf("these folders import each other in a circle: %s", strings.Join(append(above[i:], folder), " -> "))
		}
		if known, ok := longest[folder]; ok {
			return known
		}
		own := []string{folder}
		for _, to := range imports[folder] {
			if below := chain(to, append(slices.Clone(above), folder)); len(below) >= len(own) {
				own = append([]string{folder}, below...)
			}
		}
		longest[folder] = own
		return own
	}
	if len(imports) < 20 {
		t.Fatalf("only %d folders have imports", len(imports))
	}
	for folder := range imports {
		if c := chain(folder, nil); len(c) > maxChain && !slices.Contains(forTests, strings.TrimPrefix(folder, "internal/")) {
			t.Errorf("a chain of %d folders, want %d at most: %s", len(c), maxChain, strings.Join(c, " -> "))
		}
	}
}

// maxFiles is how many files a package may have without its tests: what a reader takes in at a glance.
const maxFiles = 12

// TestPackageHasFewFiles: a package that needs more is two, that of a test tool too. The suite that all clouds share has a file for each
// thing that it asks of a cloud.
func TestPackageHasFewFiles(t *testing.T) {
	for _, pkg := range list(t, "./...") {
		if n := len(pkg.GoFiles); n > maxFiles && pkg.ImportPath != module+"/internal/cloud/cloudtest" {
			t.Errorf("%s has %d files, want %d at most: %s", pkg.ImportPath, n, maxFiles, strings.Join(pkg.GoFiles, " "))
		}
	}
}

// minLines is how few lines a file may have: what is shorter is a part of what stands next to it.
const minLines = 30

// TestNoFileIsTiny: the comment of a package and the start of a program are looked for in files of their own.
func TestNoFileIsTiny(t *testing.T) {
	sources(t, func(path, text string) {
		if strings.Contains(path, "/testdata/") || strings.HasPrefix(text, "// Code generated ") {
			return
		}
		if name := filepath.Base(path); strings.Count(text, "\n") < minLines && name != "doc.go" && name != "main.go" {
			t.Errorf("%s has fewer than %d lines: merge it into a file next to it", path, minLines)
		}
	})
}

// folderOf returns the folder directly below cmd, internal or internal/cloud that has a package of ours; "" for others.
func folderOf(path string) string {
	ours, ok := strings.CutPrefix(path, module+"/")
	parts := strings.Split(ours, "/")
	switch {
	case !ok || parts[0] != "cmd" && parts[0] != "internal":
		return ""
	case parts[0] == "internal" && parts[1] == "cloud" && len(parts) > 2:
		return strings.Join(parts[:3], "/")
	}
	return strings.Join(parts[:2], "/")
}
