package docs_test

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestFiguresAreWithinTheBars: the reads of a volume are in docs/sizing.md, as `make bench` allows them. The
// comparison links there, and what contributors read is the same.
func TestFiguresAreWithinTheBars(t *testing.T) {
	page := func(name string) string { return read(t, filepath.Join(root, "docs", name)) }
	sizing := page("sizing.md")
	if comparison := page("comparison.md"); !strings.Contains(comparison, "(sizing.md#api-calls)") {
		t.Error("docs/comparison.md does not link to the reads of docs/sizing.md")
	}
	names := map[string]string{"digitalocean": "DigitalOcean", "linode": "Linode", "yandex": "Yandex Cloud"}
	for _, cloud := range measured(t) {
		name, known := names[cloud]
		if !known {
			t.Errorf("test/run/bench measures %s, whose name on the pages is not in this test", cloud)
			continue
		}
		const number = `([0-9.]+)`
		short := match(t, sizing, `\| `+name+` \| 4 \| `+number+` \| `+number+` \| `+number+`[^|]* `+number+` \|`)
		bars := match(t, read(t, filepath.Join(root, "test/run/bench", cloud+".go")), `bars6\{each: `+number+`, .*`)
		if short == nil || bars == nil {
			continue
		}
		if bars[1] != short[3] || value(t, short[1]) > value(t, bars[1]) || value(t, short[2]) > value(t, short[4]) {
			t.Errorf("docs/sizing.md: reads %s and %s, and the bars %s and %s of %s, want the bar %s of test/run/bench, and reads within both",
				short[1], short[2], short[3], short[4], name, bars[1])
		}
		reads, _, _ := strings.Cut(between(t, between(t, page("contributing/clouds.md"), "\n## "+name+"\n"), "400 writes"), "\n\n")
		for _, each := range short[1:3] {
			if want := strconv.Itoa(int(value(t, each)*100 + 0.5)); !strings.Contains(strings.ReplaceAll(reads, ",", ""), want) {
				t.Errorf("docs/contributing/clouds.md does not have the %s reads of 100 volumes of %s of docs/sizing.md, but: %s", want, name, reads)
			}
		}
	}
}

// measured are the clouds that `make bench` has bars for.
func measured(t *testing.T) (clouds []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "test/run/bench/*.go"))
	must(t, err)
	for _, file := range files {
		if strings.Contains(read(t, file), "bars6{each: ") {
			clouds = append(clouds, strings.TrimSuffix(filepath.Base(file), ".go"))
		}
	}
	if len(clouds) < 3 {
		t.Fatalf("test/run/bench measures only %q", clouds)
	}
	return clouds
}

// match returns what a pattern finds in a text, and fails the test where it finds nothing.
func match(t *testing.T, text, pattern string) []string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Errorf("nothing matches %s", pattern)
	}
	return found
}

func between(t *testing.T, text, beginning string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, beginning)
	if !found {
		t.Errorf("there is no %q", beginning)
	}
	return rest
}

func value(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Error(err)
	}
	return v
}
