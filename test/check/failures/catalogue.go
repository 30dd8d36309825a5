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
}

// test names a test function of a package of the project.
type test struct{ pkg, name string }

// elsewhere returns the target that runs the test, if `make failures` cannot: `make e2e-vm` has a kernel with modules that
// this machine's may lack, and `make e2e-cluster` takes too long.
func (t test) elsewhere() string {
	switch {
	case strings.HasPrefix(t.pkg, "test/run/e2e/vm"):
		return "make e2e-vm"
	case strings.HasPrefix(t.pkg, "test/run/e2e/cluster"):
		return "make e2e-cluster"
	}
	return ""
}

var (
	rowStart = regexp.MustCompile(`^\| *([FACEPL][0-9]+) *\|`)
	rowID    = regexp.MustCompile(`[FACEPL][0-9]+`)
	// faultRow is a row of the table of faults in a virtual machine: | fault | rows | what the node did |.
	faultRow = regexp.MustCompile(`^\| [^|]+ \| ((?:[FACEPL][0-9]+(?:, )?)+) \| [^|]+ \|$`)
)

// parse reads the rows of the tables, | id | harm | what must hold | where it happened |, and the ids of the rows that the
// table of faults in a virtual machine names.
func parse(text string) (rows []row, inVM []string, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if fault := faultRow.FindStringSubmatch(line); fault != nil {
			inVM = append(inVM, rowID.FindAllString(fault[1], -1)...)
			continue
		}
		start := rowStart.FindStringSubmatch(line)
		if start == nil {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 4 {
			return nil, nil, fmt.Errorf("row %s has %d cells, want 4", start[1], len(cells))
		}
		if find(rows, start[1]) >= 0 {
			return nil, nil, fmt.Errorf("row %s stands twice", start[1])
		}
		rows = append(rows, row{id: start[1], invariant: strings.TrimSpace(cells[2])})
	}
	if len(rows) == 0 {
		return nil, nil, errors.New("no rows")
	}
	return rows, inVM, nil
}

func find(rows []row, id string) int {
	return slices.IndexFunc(rows, func(r row) bool { return r.id == id })
}

// join gives each row the tests whose comments name it. A row needs a test that a kernel without special modules can run,
// and one in the virtual machine if the table of faults there names it.
func join(rows []row, inVM []string, found []claim) error {
	var errs []error
	for _, c := range found {
		i := find(rows, c.row)
		switch {
		case i < 0:
			errs = append(errs, fmt.Errorf("%s names the row %s, which the catalogue does not have", c.place, c.row))
		case !slices.Contains(rows[i].tests, c.test):
			rows[i].tests = append(rows[i].tests, c.test)
		}
	}
	for _, r := range rows {
		vm := func(t test) bool { return t.elsewhere() == "make e2e-vm" }
		switch {
		case len(r.tests) == 0:
			errs = append(errs, fmt.Errorf("no test names the row %s", r.id))
		case !slices.ContainsFunc(r.tests, func(t test) bool { return !vm(t) }):
			errs = append(errs, fmt.Errorf("only tests of make e2e-vm name the row %s", r.id))
		case slices.Contains(inVM, r.id) && !slices.ContainsFunc(r.tests, vm):
			errs = append(errs, fmt.Errorf("no test of make e2e-vm names the row %s, which has a fault in a virtual machine", r.id))
		}
	}
	for _, id := range inVM {
		if find(rows, id) < 0 {
			errs = append(errs, fmt.Errorf("the table of faults in a virtual machine names the row %s, which does not exist", id))
		}
	}
	return errors.Join(errs...)
}
