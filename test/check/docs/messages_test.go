package docs_test

import (
	"go/scanner"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	// messageTable is a table whose first column has messages of the programs in `ticks`. A cloud's own words are in
	// "quotes" there.
	messageTable = regexp.MustCompile(`(?m)^\| message .*\n\|[-|]+\n((?:\|.*\n?)+)`)
	// messageItem begins an item about a code, with its message in `ticks`.
	messageItem = regexp.MustCompile(`(?m)^- \*\*[A-Z][A-Za-z]+ on [^*]*\*\*`)
	ticked      = regexp.MustCompile("`([^`]+)`")
	// filledIn are the parts of a message that the program fills in: a word of capitals, a number, or `...`.
	filledIn = regexp.MustCompile(`\.\.\.|"?\b(?:[A-Z]+|[0-9]+)\b"?`)
	// wordOf is what a cloud calls its volumes or machines, which the program fills in too.
	wordOf = regexp.MustCompile(`(?:Volume|Machine)Word: "([^"]+)"`)
	verb   = regexp.MustCompile(`%[-+#.0-9]*[a-zA-Z]`)
)

// TestMessagesAreInTheSource: what a document quotes of the programs is what they write.
func TestMessagesAreInTheSource(t *testing.T) {
	literals, fills := stringLiterals(t), filledInFor(t)
	quoted := 0
	for _, doc := range documents(t) {
		text := read(t, doc)
		for _, message := range messagesIn(text) {
			quoted++
			if !written(literals, fills, message) {
				t.Errorf("%s quotes %q, which no program writes", rel(doc), message)
			}
		}
	}
	if quoted < 20 {
		t.Errorf("found only %d messages in the documents", quoted)
	}
}

func messagesIn(text string) []string {
	var found []string
	add := func(cell string) {
		for _, m := range ticked.FindAllStringSubmatch(cell, -1) {
			found = append(found, m[1])
		}
	}
	for _, table := range messageTable.FindAllStringSubmatch(text, -1) {
		for row := range strings.Lines(table[1]) {
			add(strings.Split(row, " | ")[0])
		}
	}
	for _, item := range messageItem.FindAllString(text, -1) {
		add(item)
	}
	return found
}

// written reports whether one string of the programs has every fixed part of a message, in order.
func written(literals []string, fills *regexp.Regexp, message string) bool {
	var parts []string
	for _, part := range fills.Split(message, -1) {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, regexp.QuoteMeta(part))
		}
	}
	pattern := regexp.MustCompile(strings.Join(parts, `.*`))
	for _, literal := range literals {
		if pattern.MatchString(literal) {
			return len(parts) > 0
		}
	}
	return false
}

// filledInFor is filledIn with the words of the clouds.
func filledInFor(t *testing.T) *regexp.Regexp {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(root, "internal", "cloud", "*", "requests.go"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("sources of the clouds: %v, %v", sources, err)
	}
	pattern := filledIn.String()
	for _, source := range sources {
		for _, m := range wordOf.FindAllStringSubmatch(read(t, source), -1) {
			pattern += `|\b` + m[1] + `\b`
		}
	}
	return regexp.MustCompile(pattern)
}

// stringLiterals are those of the programs, without the verbs of package fmt.
func stringLiterals(t *testing.T) []string {
	t.Helper()
	var found []string
	walk(t, func(path string) {
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			found = append(found, literalsOf([]byte(read(t, path)))...)
		}
	}, "cmd", "internal")
	return found
}

func literalsOf(source []byte) []string {
	var found []string
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(source)), source, nil, 0)
	for {
		_, kind, text := s.Scan()
		if kind == token.EOF {
			return found
		}
		if kind != token.STRING {
			continue
		}
		if value, err := strconv.Unquote(text); err == nil {
			found = append(found, verb.ReplaceAllString(value, ""))
		}
	}
}
