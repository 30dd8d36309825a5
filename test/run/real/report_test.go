package real

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
)

// headings are the sections of the clouds in docs/contributing/clouds.md.
var headings = map[string]string{"digitalocean": "DigitalOcean", "linode": "Linode", "yandex": "Yandex Cloud"}

func TestAssumptionsAreThoseOfTheDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/contributing/clouds.md")
	must(t, err)
	for _, name := range accounts.Names() {
		_, table, _ := strings.Cut(string(text), "\n## "+headings[name]+"\n")
		table, _, _ = strings.Cut(table, "\n## ")
		var want, got []string
		for line := range strings.Lines(table) {
			if cell, _, is := strings.Cut(strings.TrimPrefix(line, "| "), " | "); is && strings.HasPrefix(line, "| ") && cell != "assumption" {
				want = append(want, cell)
			}
		}
		for _, a := range clouds[name].assumptions {
			got = append(got, a.Text)
			if (a.Shown == "") == (a.Why == "") {
				t.Errorf("%s: %q needs a part that shows it, or why there is none", name, a.Text)
			}
		}
		if len(want) < 10 || !slices.Equal(got, want) {
			t.Errorf("%s: the assumptions are\n%q\nand the page has\n%q", name, got, want)
		}
	}
}

// sentences are all texts of the suite's source, as the testing package writes them in names.
func sentences(t *testing.T) (all []string) {
	t.Helper()
	files, err := filepath.Glob("../../../internal/cloud/cloudtest/*.go")
	must(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if text, is := n.(*ast.BasicLit); is && text.Kind == token.STRING {
				sentence, err := strconv.Unquote(text.Value)
				must(t, err)
				all = append(all, strings.ReplaceAll(sentence, " ", "_"))
			}
			return true
		})
	}
	return all
}

// A pattern that fits no part of the suite would leave nothing out, and show nothing.
func TestPatternsNamePartsOfTheSuite(t *testing.T) {
	all := append(sentences(t), "Life", "a_copy_of_a_snapshot")
	var patterns []string
	for _, name := range accounts.Names() {
		for _, l := range (Account{Cloud: name}).LeftOut() {
			patterns = append(patterns, l.Pattern)
		}
		for _, a := range clouds[name].assumptions {
			patterns = append(patterns, a.Shown)
		}
	}
	for _, pattern := range patterns {
		for element := range strings.SplitSeq(pattern, "/") {
			for word := range strings.SplitSeq(strings.Trim(element, "()$"), "|") {
				begins := regexp.MustCompile("^" + word)
				if !slices.ContainsFunc(all, begins.MatchString) {
					t.Errorf("%q of %q begins no part of the suite", word, pattern)
				}
			}
		}
	}
}

func TestHeldSaysWhatTheRunShowed(t *testing.T) {
	o := Outcomes{"Names/any_name": true, "Copies/a_copy_of_a_snapshot_x": true, "Copies/a_copy_of_a_snapshot_y": false}
	for shown, want := range map[string]string{
		"Names/any_name": "held", "Copies/a_copy": "NOT HELD (Copies/a_copy_of_a_snapshot_y)", "Attach/it_makes": "not looked at: Attach/it_makes was not run",
	} {
		if got := o.Held(Assumption{Shown: shown}); got != want {
			t.Errorf("Held(%s) = %q, want %q", shown, got, want)
		}
	}
}
