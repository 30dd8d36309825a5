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
	id, invariant string // the invariant with its sources
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
	// rowStart is the beginning of a row, and what it has to look like: its id, its harm, and what must hold.
	rowStart = regexp.MustCompile(`^- \*\*([A-Z][0-9]+)\*\*`)
	rowForm  = regexp.MustCompile(`^- \*\*([FACEPL][0-9]+)\*\* (?:LOSS|WRONG|OUT|LEAK): (\S.*)$`)
	rowID    = regexp.MustCompile(`\b[FACEPL][0-9]+\b`)
)

// vmSection is the section of faults in a virtual machine. Each row that it names has a test there.
const vmSection = "## Faults in a virtual machine"

// parse reads the rows of the lists, - **id** HARM: what must hold (where it happened), and the ids of the rows that vmSection
// names.
func parse(text string) (rows []row, inVM []string, err error) {
	section, open := "", false // open: the next line may go on with the last row
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if strings.HasPrefix(line, "## ") {
			section = line
		}
		start := rowStart.FindStringSubmatch(line)
		switch {
		case section == vmSection:
			inVM = append(inVM, rowID.FindAllString(line, -1)...)
		case start != nil:
			form := rowForm.FindStringSubmatch(line)
			if form == nil {
				return nil, nil, fmt.Errorf("row %s is not of the form - **id** HARM: what must hold", start[1])
			}
			if find(rows, form[1]) >= 0 {
				return nil, nil, fmt.Errorf("row %s stands twice", form[1])
			}
			rows, open = append(rows, row{id: form[1], invariant: form[2]}), true
		case open && strings.HasPrefix(line, "  "):
			rows[len(rows)-1].invariant += " " + strings.TrimSpace(line)
		default:
			open = false
		}
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
// and one in the virtual machine if vmSection names it.
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
			errs = append(errs, fmt.Errorf("the section of faults in a virtual machine names the row %s, which does not exist", id))
		}
	}
	return errors.Join(errs...)
}
