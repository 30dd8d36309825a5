package docs_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/check/docs/install"
)

var (
	usesLine = regexp.MustCompile(`(?m)^\s*(?:- )?uses: (.*)$`)
	pinned   = regexp.MustCompile(`^[a-z-]+/[a-z-]+@[0-9a-f]{40} # v[0-9]+\.[0-9]+\.[0-9]+$`)
	makeLine = regexp.MustCompile(`(?m)^\s*(?:- )?run: (?:sudo (?:env "PATH=\$PATH" "HOME=\$HOME" )?)?make (.*)$`)
	runLine  = regexp.MustCompile(`(?m)^\s*(?:- )?run: .*$`)
	target   = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
)

// What the workflows do runs on any machine: each step is a make target that exists. The one other step finds out
// whether there is an account. Actions are pinned by commit, since a tag can be moved.
func TestWorkflowsCallMakeTargets(t *testing.T) {
	var targets []string
	for _, m := range target.FindAllStringSubmatch(read(t, filepath.Join(root, "Makefile")), -1) {
		targets = append(targets, m[1])
	}
	for name, text := range workflows(t) {
		for _, m := range usesLine.FindAllStringSubmatch(text, -1) {
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s uses %s, want a full commit and its version", name, m[1])
			}
		}
		for _, line := range runLine.FindAllString(text, -1) {
			m := makeLine.FindStringSubmatch(line)
			if m == nil {
				if name != "e2e.yaml" || strings.TrimSpace(line) != "run: |" {
					t.Errorf("%s runs %q, which is no make target", name, strings.TrimSpace(line))
				}
				continue
			}
			for _, word := range wordsOf(t, m[1], text) {
				if !slices.Contains(targets, word) {
					t.Errorf("%s makes %s, which the Makefile does not have", name, word)
				}
			}
		}
	}
}

// workflows are the texts of all workflows by the names of their files.
func workflows(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("workflows: %q, %v", files, err)
	}
	texts := map[string]string{}
	for _, file := range files {
		texts[filepath.Base(file)] = read(t, file)
	}
	return texts
}

// TestTheWorkflowsRunEachCloud: the emulated runs are of each cloud that can be installed, the clusters also of local.
func TestTheWorkflowsRunEachCloud(t *testing.T) {
	all, err := install.Clouds(root)
	must(t, err)
	clouds := slices.DeleteFunc(slices.Clone(all), func(cloud string) bool { return cloud == "local" })
	for _, of := range []struct {
		workflow, matrix string
		want             []string
	}{{"e2e.yaml", "cloud", clouds}, {"nightly.yaml", "backend", all}} {
		m := regexp.MustCompile(`(?m)^\s*` + of.matrix + `: \[(.*)\]$`).FindStringSubmatch(workflows(t)[of.workflow])
		if m == nil || !slices.Equal(strings.Split(m[1], ", "), of.want) {
			t.Errorf("%s runs %q, want %q", of.workflow, m, of.want)
		}
	}
}

var matrixTargets = regexp.MustCompile(`(?m)^\s*target: \[(.*)\]$`)

// wordsOf are the targets of a call of make; those of a matrix are in its list.
func wordsOf(t *testing.T, call, workflow string) []string {
	t.Helper()
	if call == "${{ matrix.target }}" {
		m := matrixTargets.FindStringSubmatch(workflow)
		if m == nil {
			t.Fatal("a workflow makes matrix.target and has no such matrix")
		}
		return strings.Split(m[1], ", ")
	}
	var words []string
	for word := range strings.FieldsSeq(call) {
		if !strings.Contains(word, "=") && !strings.ContainsAny(word, "${}.") {
			words = append(words, word)
		}
	}
	return words
}
