// Package docs_test keeps the documents from pointing at what is not there.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

const root = "../../.."

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	// makeTarget is a command as the documents write it, in a line of its own or in `ticks`.
	makeTarget = regexp.MustCompile("(?m)(?:^ {4}|`)(?:sudo )?make ([a-z0-9-]+)")
	fenced     = regexp.MustCompile("(?s)```.*?```")
)

// documents are all that people read.
func documents(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "*.md"))
	walk(t, func(path string) {
		if strings.HasSuffix(path, ".md") {
			found = append(found, path)
		}
	}, "docs")
	if err != nil || len(found) < 5 {
		t.Fatalf("found only %v: %v", found, err)
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func TestLinksLeadSomewhere(t *testing.T) {
	for _, doc := range documents(t) {
		for _, found := range link.FindAllStringSubmatch(read(t, doc), -1) {
			target, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path := doc
			if target != "" {
				path = filepath.Join(filepath.Dir(doc), target)
			}
			info, err := os.Stat(path)
			switch {
			case err != nil:
				t.Errorf("%s links to %s, which is not there", rel(doc), found[1])
			case anchor != "" && !info.IsDir() && !anchors(read(t, path))[anchor]:
				t.Errorf("%s links to %s, and no heading there is #%s", rel(doc), found[1], anchor)
			}
		}
	}
}

func TestCommandsOfMakeExist(t *testing.T) {
	makefile := "\n" + read(t, filepath.Join(root, "Makefile"))
	for _, doc := range documents(t) {
		for _, found := range makeTarget.FindAllStringSubmatch(read(t, doc), -1) {
			if !strings.Contains(makefile, "\n"+found[1]+":") {
				t.Errorf("%s says `make %s`, which the Makefile does not have", rel(doc), found[1])
			}
		}
	}
}

func rel(path string) string { return strings.TrimPrefix(path, root+"/") }

// anchors are the names that headings get on the web: lower case, words joined by dashes, no marks.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		found[strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			default:
				return -1
			}
		}, h[1])] = true
	}
	return found
}
