package docs_test

import (
	"regexp"
	"strings"
	"testing"
)

// longest is how many words in a row are too many in two pages.
const longest = 12

var (
	// code is what a reader types, and flagRow a row of a table of flags, which two pages may share.
	code    = regexp.MustCompile(`(?m)^(?: {4,}\S.*\n(?:[ \t]*\n)*)+`)
	flagRow = regexp.MustCompile("(?m)^\\| `--.*\n")
	// where a link leads is no word.
	linkTarget = regexp.MustCompile(`\]\([^)\s]*\)`)
	wordOfText = regexp.MustCompile(`[\pL\pN][\pL\pN_.:/'=-]*`)
	// part ends what is read in one piece: a paragraph, a heading, a row of a table, an item of a list.
	part = regexp.MustCompile(`\n[ \t]*\n|\n(?:#|\||\d+\. | *- )`)
)

// TestNothingIsSaidTwice: no run of 12 words stands in two pages, so that a fact has one place where it can be corrected.
func TestNothingIsSaidTwice(t *testing.T) {
	pages := map[string]string{} // by the run of words that begins there
	for _, doc := range documents(t) {
		if name := rel(doc); name != "README.md" && !strings.HasPrefix(name, "docs/") {
			continue
		}
		for _, found := range repeats(pages, rel(doc), read(t, doc)) {
			t.Error(found)
		}
	}
	if len(pages) < 10000 {
		t.Errorf("found only %d runs of words", len(pages))
	}
}

// repeats adds the runs of a page to those of the pages before it, and returns those that stand there.
func repeats(pages map[string]string, page, text string) (found []string) {
	text = flagRow.ReplaceAllString(code.ReplaceAllString(fenced.ReplaceAllString(text, "\n"), "\n"), "")
	for _, p := range part.Split(linkTarget.ReplaceAllString(strings.ToLower(text), "] "), -1) {
		words := wordOfText.FindAllString(p, -1)
		for i := range words {
			words[i] = strings.TrimRight(words[i], ".:'")
		}
		end := 0 // of the last run that was found
		for i := 0; i+longest <= len(words); i++ {
			run := strings.Join(words[i:i+longest], " ")
			switch first, said := pages[run]; {
			case !said:
				pages[run] = page
			case first != page && i >= end:
				end = i + longest
				found = append(found, page+" says as "+first+" does: "+run)
			}
		}
	}
	return found
}
