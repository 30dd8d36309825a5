// Package words reads a page that is for several clouds as a reader with one of them does.
package words

import (
	"regexp"
	"slices"
	"strings"
)

var (
	// tableOf is a page's table of the words that stand for what differs between the clouds. Its row `CLOUD` names them.
	tableOf = regexp.MustCompile(`(?m)^\| word \|.*\n\|[-|]+\n((?:\|.*\n)+)`)
	// only ends a line of code that readers with one cloud need.
	only = regexp.MustCompile(`(?m)^.*# ([a-z]+) only\b.*\n`)
	// capitals is a word of the table.
	capitals = regexp.MustCompile(`\b[A-Z]+\b`)
)

// Clouds are those that a page is for by its table of words, in order. A page without the table has none.
func Clouds(text string) []string { return slices.DeleteFunc(rows(text)["CLOUD"], isEmpty) }

func isEmpty(cell string) bool { return cell == "" }

// For returns a page as its readers with one cloud follow it: with the words of that cloud, and without the lines of
// others. A word that the table leaves open stays, and so does a page without the table.
func For(text, cloud string) string {
	table := rows(text)
	at := slices.Index(table["CLOUD"], cloud)
	if at < 0 {
		return text
	}
	text = only.ReplaceAllStringFunc(text, func(line string) string {
		if only.FindStringSubmatch(line)[1] != cloud {
			return ""
		}
		return line
	})
	return capitals.ReplaceAllStringFunc(text, func(word string) string {
		if cells := table[word]; at < len(cells) && cells[at] != "" {
			return cells[at]
		}
		return word
	})
}

// rows are those of the table: what is in `ticks` in the columns of the clouds, by the word; "" where nothing is.
func rows(text string) map[string][]string {
	table := tableOf.FindStringSubmatch(text)
	if table == nil {
		return nil
	}
	found := map[string][]string{}
	for row := range strings.Lines(table[1]) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
		var values []string
		for _, cell := range cells {
			value, _, ticked := strings.Cut(strings.TrimPrefix(strings.TrimSpace(cell), "`"), "`")
			if !ticked {
				value = ""
			}
			values = append(values, value)
		}
		found[values[0]] = values[1:]
	}
	return found
}
