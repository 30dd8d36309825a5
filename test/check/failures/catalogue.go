package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// row is one row of the catalogue.
type row struct {
	id, invariant string
	tests         []test
	// part is the part of `make e2e-cluster` that tests a row without tests here.
	part string
}

// test names a test function, or one of its subtests, of a package of the project.
type test struct{ pkg, name string }

// inVM reports whether the test needs `make e2e-vm`, a kernel with modules that this machine's may lack.
func (t test) inVM() bool { return strings.HasPrefix(t.pkg, "test/run/e2e/vm") }

var (
	rowStart = regexp.MustCompile(`^\| *([FACEPL][0-9]+) *\|`)
	// clusterPart is how a row names a part of the suite in a real Kubernetes, which is too long for `make failures`.
	clusterPart = regexp.MustCompile("the part `([a-z-]+)` of \\[`make e2e-cluster`\\]")
	testName    = regexp.MustCompile("`((?:cmd|internal|test)/[a-z0-9/]+)\\.((?:Test|Fuzz)[A-Za-z0-9_]+(?:/[^`]+)?)`")
)

// parse reads the rows of the tables: | id | harm | what must hold | where it happened | tests |.
func parse(text string) ([]row, error) {
	var rows []row
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		start := rowStart.FindStringSubmatch(line)
		if start == nil {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 {
			return nil, fmt.Errorf("row %s has %d cells, want 5", start[1], len(cells))
		}
		if seen[start[1]] {
			return nil, fmt.Errorf("row %s stands twice", start[1])
		}
		seen[start[1]] = true
		r := row{id: start[1], invariant: strings.TrimSpace(cells[2])}
		for _, name := range testName.FindAllStringSubmatch(cells[4], -1) {
			r.tests = append(r.tests, test{pkg: name[1], name: name[2]})
		}
		if len(r.tests) > 0 && !slices.ContainsFunc(r.tests, func(t test) bool { return !t.inVM() }) {
			return nil, fmt.Errorf("row %s names only tests of make e2e-vm", r.id)
		}
		if len(r.tests) == 0 {
			part := clusterPart.FindStringSubmatch(cells[4])
			if part == nil {
				return nil, fmt.Errorf("row %s names no test and no part of make e2e-cluster: %q", r.id, cells[4])
			}
			r.part = part[1]
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return nil, errors.New("no rows")
	}
	return rows, nil
}
