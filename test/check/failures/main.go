// Command failures reads the failure catalogue, docs/contributing/failures.md, and runs the tests that name its rows in their
// comments. It prints every row with its tests, the backends they ran on and the outcome. It fails when a row has no test,
// when a comment names no row, and when a test fails, is skipped or does not run.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	catalogue := flag.String("catalogue", "docs/contributing/failures.md", "the table to read")
	flag.Parse()
	err := run(ctx, *catalogue, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "failures:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, catalogue string, out io.Writer) error {
	rows, err := read(catalogue, ".")
	if err != nil {
		return err
	}
	results, err := runTests(ctx, here(rows), out)
	if err != nil {
		return err
	}
	return report(rows, results, out)
}

// read returns the rows of the catalogue with the tests below root that name them.
func read(catalogue, root string) ([]row, error) {
	text, err := os.ReadFile(catalogue)
	if err != nil {
		return nil, err
	}
	rows, inVM, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", catalogue, err)
	}
	found, err := claims(root)
	if err != nil {
		return nil, err
	}
	return rows, join(rows, inVM, found)
}

// here returns every test that names a row and that can run here, by package.
func here(rows []row) map[string][]string {
	tests := map[string][]string{}
	for _, r := range rows {
		for _, t := range r.tests {
			if t.elsewhere() == "" && !slices.Contains(tests[t.pkg], t.name) {
				tests[t.pkg] = append(tests[t.pkg], t.name)
			}
		}
	}
	return tests
}

// report prints the table and returns an error that counts the rows that do not hold.
func report(rows []row, results map[test]outcome, out io.Writer) error {
	var held, broken, elsewhere int
	rowsOn := map[string][]string{} // by backend
	fmt.Fprintln(out)
	for _, r := range rows {
		verdict := "not here"
		for _, t := range r.tests {
			switch {
			case t.elsewhere() != "" || verdict == "BROKEN":
			case results[t] == passed:
				verdict = "holds"
			default:
				verdict = "BROKEN"
			}
		}
		switch verdict {
		case "holds":
			held++
		case "BROKEN":
			broken++
		default:
			elsewhere++
		}
		fmt.Fprintf(out, "%-4s %-8s %s\n", r.id, verdict, withoutSources(r.invariant))
		for _, t := range r.tests {
			if target := t.elsewhere(); target != "" {
				fmt.Fprintf(out, "       %-10s %-20s %s.%s\n", "not here", target, t.pkg, t.name)
				continue
			}
			on := backendsOf(t, results)
			for _, backend := range on {
				rowsOn[backend] = append(rowsOn[backend], r.id)
			}
			fmt.Fprintf(out, "       %-10s %-20s %s.%s\n", results[t], strings.Join(on, ", "), t.pkg, t.name)
		}
	}
	fmt.Fprintln(out)
	for _, backend := range slices.Sorted(maps.Keys(rowsOn)) {
		fmt.Fprintf(out, "%2d rows have a test on %s\n", len(slices.Compact(rowsOn[backend])), backend)
	}
	fmt.Fprintf(out, "\n%d rows hold, %d broken, %d tested by make e2e-cluster\n", held, broken, elsewhere)
	if broken > 0 {
		return fmt.Errorf("%d rows are broken", broken)
	}
	return nil
}

// withoutSources cuts off where it happened, which stands in brackets at the end.
func withoutSources(invariant string) string {
	if i := strings.LastIndex(invariant, " ("); i > 0 && strings.HasSuffix(invariant, ")") {
		return invariant[:i]
	}
	return invariant
}

// emulated are the clouds that subtests are named by.
var emulated = slices.DeleteFunc(profile.Names(), func(name string) bool { return name == "local" })

// backendsOf says which backends a test ran on: those that its subtests are named by, as far as they ran,
// else the one of its package.
func backendsOf(t test, results map[test]outcome) []string {
	found := map[string]bool{}
	for ran := range results {
		sub, is := strings.CutPrefix(ran.name, t.name+"/")
		if ran.pkg != t.pkg || !is {
			continue
		}
		for _, cloud := range emulated {
			if strings.Contains(strings.ToLower(sub), cloud) {
				found[cloud] = true
			}
		}
		if strings.HasPrefix(sub, "pool_on_") {
			found["local"] = true
		}
	}
	if len(found) == 0 {
		return []string{backendOf(t.pkg)}
	}
	return slices.Sorted(maps.Keys(found))
}

// backendOf says which backend a package's tests run on: a backend's own folder names it, the
// controller's tests run over the reference backend, everything that needs a device runs on local.
func backendOf(pkg string) string {
	if rest, ok := strings.CutPrefix(pkg, "internal/cloud/"); ok {
		first, _, _ := strings.Cut(rest, "/")
		if slices.Contains(emulated, first) || first == "local" || first == "memory" {
			return first
		}
		return "memory"
	}
	switch {
	case strings.HasPrefix(pkg, "internal/driver/node"), strings.HasPrefix(pkg, "internal/mounter"), strings.HasPrefix(pkg, "internal/pool"), path.Dir(pkg) == "test/run":
		return "local"
	default:
		return "memory"
	}
}
