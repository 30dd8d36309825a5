// Package golden compares what the programs print with what is frozen.
package golden

import (
	"os"
	"path/filepath"
	"regexp"
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
	path := filepath.Join("testdata", file)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the program does not print what %s has; if it should, run `make golden`. It prints:\n%s\nwant:\n%s", path, got, want)
	}
}
