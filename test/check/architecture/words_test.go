// Package architecture holds the tests of the project's structure: who may import whom, and which
// words may stand where.
package architecture_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestVocabularies keeps words in the layer they belong to.
func TestVocabularies(t *testing.T) {
	clouds := slices.Sorted(maps.Keys(sdks))
	var spellings []string
	for _, name := range clouds { // in any case, but not as the "linode" in "TotalInodes"
		spellings = append(spellings, name, `\b(?i:`+name+`)`, strings.ToUpper(name[:1])+`(?i:`+name[1:]+`)`)
	}
	rules := []struct {
		why     string
		word    *regexp.Regexp
		allowed func(path string) bool
	}{
		{
			why:  "only these places know a cloud by its name",
			word: regexp.MustCompile(strings.Join(spellings, "|")),
			allowed: func(path string) bool {
				switch path {
				case "cmd/controller/backends.go", "cmd/controller/config.go", "cmd/node/config.go",
					"internal/profile/clouds.go", "internal/driver/compat/vendors.go":
					return true
				}
				return strings.HasPrefix(path, "test/") || slices.ContainsFunc(clouds, func(name string) bool {
					return path == "internal/machine/"+name+".go" || strings.HasPrefix(path, "internal/cloud/"+name+"/")
				})
			},
		},
		{
			why:  "gRPC statuses are made in one place",
			word: regexp.MustCompile(`\bstatus\.(Error|Errorf|New|Newf)\(`),
			allowed: func(path string) bool {
				return path == "internal/driver/status.go" || strings.HasPrefix(path, "test/")
			},
		},
		{
			why:  "only the programs read the environment",
			word: regexp.MustCompile(`\bos\.(Getenv|LookupEnv)\(`),
			allowed: func(path string) bool {
				return strings.HasPrefix(path, "cmd/") || strings.HasPrefix(path, "test/")
			},
		},
		{
			why:     "commands are run as argument lists, never through a shell",
			word:    regexp.MustCompile(`"(/bin/)?(ba)?sh", *"-c"`),
			allowed: func(path string) bool { return strings.HasPrefix(path, "test/") },
		},
	}
	sources(t, func(path, text string) {
		for _, rule := range rules {
			if rule.allowed(path) || strings.HasSuffix(path, "_test.go") {
				continue
			}
			for i, line := range strings.Split(text, "\n") {
				if rule.word.MatchString(line) {
					t.Errorf("%s:%d: %s: %s", path, i+1, rule.why, strings.TrimSpace(line))
				}
			}
		}
	})
}

// sources calls visit with every Go file of the project.
func sources(t *testing.T, visit func(path, text string)) {
	t.Helper()
	root := "../../.."
	found := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && rel != "." {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found++
		visit(filepath.ToSlash(rel), string(text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Fatal("no Go files found: the test looks in the wrong place")
	}
}

// TestMountNamespacesOfTestsAreSeparate: a mount namespace is a copy of every mount. Tests that run at the same time as others
// make theirs with mounts.Separate, which unmounts the copies of the others' volumes.
func TestMountNamespacesOfTestsAreSeparate(t *testing.T) {
	found := 0
	sources(t, func(path, text string) {
		alone := strings.HasPrefix(path, "test/run/cluster/") || strings.HasPrefix(path, "test/run/e2e/vm/") || strings.HasPrefix(path, "test/check/")
		if !alone && (strings.Contains(text, `"unshare"`) || strings.Contains(text, "CLONE_NEWNS")) {
			found++
			if path != "test/kit/mounts/mounts.go" {
				t.Errorf("%s makes a mount namespace without mounts.Separate", path)
			}
		}
	})
	if found == 0 {
		t.Fatal("found no mount namespace: the test looks in the wrong place")
	}
}

// TestNobodySleepsInRealTime: a test that waits for the wall clock is slow or fails on a busy machine. The
// word stands only below synctest.Test in the same test function, or below simulated, as the packages name
// their own short way to it: on that clock sleeping is how time passes, and takes none.
func TestNobodySleepsInRealTime(t *testing.T) {
	found := 0
	sources(t, func(path, text string) {
		if filepath.Base(path) == "words_test.go" {
			return
		}
		simulated, number := false, 0
		for line := range strings.Lines(text) {
			number++
			switch {
			case strings.HasPrefix(line, "func "):
				simulated = false
			case strings.Contains(line, "synctest.Test("), strings.Contains(line, "\tsimulated(t, "):
				simulated = strings.HasSuffix(path, "_test.go")
			case strings.Contains(line, "time.Sleep("):
				found++
				if !simulated {
					t.Errorf("%s:%d sleeps, and not on a simulated clock", path, number)
				}
			}
		}
	})
	if found == 0 {
		t.Fatal("found nothing that sleeps, so this test shows nothing")
	}
}
