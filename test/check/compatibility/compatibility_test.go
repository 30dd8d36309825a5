// Package compatibility_test holds what docs/upgrade.md says stays compatible, as far as it is in no package's own test.
package compatibility_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

const root = "../../.."

// TestMetricsAreAsFrozen: dashboards and alerts have the names.
func TestMetricsAreAsFrozen(t *testing.T) {
	name := regexp.MustCompile(`"(cloudblock_[a-z_]+)"`)
	var names []string
	for _, folder := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, found := range name.FindAllStringSubmatch(string(text), -1) {
				names = append(names, found[1])
			}
			return err
		})
		expect.NoError(t, err)
	}
	golden.Names(t, "metrics.txt", names)
}

// TestValuesOfTheChartAreAsFrozen: people's values files have the names.
func TestValuesOfTheChartAreAsFrozen(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "deploy/charts/cloudblock-csi/values.yaml"))
	expect.NoError(t, err)
	golden.Names(t, "values.txt", keys(string(text)))
}

var key = regexp.MustCompile(`^((?:  )*)([A-Za-z][A-Za-z0-9]*):`)

// keys returns the names of all values of a file that nests by two spaces.
func keys(text string) []string {
	var names, above []string
	for line := range strings.Lines(text) {
		if found := key.FindStringSubmatch(line); found != nil {
			above = append(above[:min(len(found[1])/2, len(above))], found[2])
			names = append(names, strings.Join(above, "."))
		}
	}
	return names
}

// TestThePageNamesEveryFrozenFile: docs/upgrade.md has a row for each file that a test of a format compares, and no other.
func TestThePageNamesEveryFrozenFile(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/upgrade.md"))
	expect.NoError(t, err)
	var want []string
	for _, folder := range []string{"cmd", "internal", "test/check/compatibility"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && entry.Name() == "testdata" {
				path, err = filepath.Rel(root, path)
				want = append(want, path)
			}
			return err
		})
		expect.NoError(t, err)
	}
	var got []string
	for _, found := range regexp.MustCompile("`([a-z/]+)(?:\\{([a-z,]+)\\})?(/testdata)[^`]*`").FindAllStringSubmatch(string(page), -1) {
		for folder := range strings.SplitSeq(found[2], ",") {
			got = append(got, found[1]+folder+found[3])
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("docs/upgrade.md names %q, want %q", got, want)
	}
}
