// Package golden compares what the programs print with what is frozen.
package golden

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unsteady is what differs from run to run in what the programs print.
var unsteady = []struct {
	is    *regexp.Regexp
	shown string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "UUID"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "HEX"},
	{regexp.MustCompile(`"allocated": \d+`), `"allocated": BYTES`}, // the filesystem of the test's folder decides
	{regexp.MustCompile(`\b\d+\.\d MiB`), "SIZE"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
}

// Check fails the test unless the program's output is that of testdata/file, which scripts and people rely on. The folders, times and ids of
// a run do not count. `make golden` writes the file: look at the difference, and say in the commit why it changed.
func Check(t testing.TB, file, output string, folders ...string) {
	t.Helper()
	got := []byte(output)
	for _, dir := range folders {
		got = regexp.MustCompile(regexp.QuoteMeta(dir)).ReplaceAll(got, []byte("/FOLDER"))
	}
	for _, u := range unsteady {
		got = u.is.ReplaceAll(got, []byte(u.shown))
	}
	if want := frozen(t, file, string(got)); string(got) != want {
		t.Errorf("the program does not print what testdata/%s has; if it should, run `make golden`. It prints:\n%s\nwant:\n%s", file, got, want)
	}
}

// Format fails the test unless the text, of a format in which something is stored, is that of testdata/file, byte by byte. What an
// earlier version has stored is in this form: docs/upgrade.md says how long it has to be read.
func Format(t testing.TB, file, text string) {
	t.Helper()
	if want := frozen(t, file, text); text != want {
		t.Errorf("the format differs from testdata/%s, in which earlier versions have stored:\n%s\nwant:\n%s", file, text, want)
	}
}

// Names fails the test unless each line of testdata/file is one of the names. Another name may be added; `make golden` freezes it.
func Names(t testing.TB, file string, names []string) {
	t.Helper()
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	for name := range strings.Lines(frozen(t, file, strings.Join(sorted, "\n")+"\n")) {
		if name = strings.TrimSuffix(name, "\n"); !slices.Contains(sorted, name) {
			t.Errorf("%s is gone, and testdata/%s has it: docs/upgrade.md says how long it has to stay", name, file)
		}
	}
}

// frozen returns the content of testdata/file, which UPDATE_GOLDEN replaces first.
func frozen(t testing.TB, file, text string) string {
	t.Helper()
	path := filepath.Join("testdata", file)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(want)
}
