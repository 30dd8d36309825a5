package yandex

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	usualPage     = 100
	largestPage   = 1000
	longestToken  = 100
	longestFilter = 1000
)

type paged interface {
	GetPageSize() int64
	GetPageToken() string
}

// pageOf returns the page of a list that a request asks for. It begins behind the element whose id is in the
// token, so elements that come and go shift nothing; or, by rule, behind so many elements.
func pageOf[T any](c *Cloud, all []T, id func(T) string, ask paged) (page []T, next string, why *refusal) {
	switch {
	case ask.GetPageSize() < 0 || ask.GetPageSize() > largestPage:
		return nil, "", bad("page_size", "Value must be less than or equal to %d", largestPage)
	case len(ask.GetPageToken()) > longestToken:
		return nil, "", bad("page_token", "Size must be less than or equal to %d", longestToken)
	}
	size := int(ask.GetPageSize())
	if size == 0 {
		size = usualPage
	}
	after, err := base64.RawURLEncoding.DecodeString(ask.GetPageToken())
	if err != nil {
		return nil, "", bad("page_token", "Token is invalid")
	}
	passed, _ := strconv.Atoi(string(after))
	switch {
	case ask.GetPageToken() == "":
	case c.rules.PagesByNumber:
		all = all[min(passed, len(all)):]
	default:
		at := slices.IndexFunc(all, func(item T) bool { return id(item) == string(after) })
		if at < 0 { // it has gone; the order is that of the ids unless something else was asked for
			at = slices.IndexFunc(all, func(item T) bool { return id(item) > string(after) }) - 1
			if at < -1 {
				at = len(all) - 1
			}
		}
		all = all[at+1:]
	}
	if len(all) <= size {
		return all, "", nil
	}
	mark := id(all[size-1])
	if c.rules.PagesByNumber {
		mark = strconv.Itoa(passed + size)
	}
	return all[:size], base64.RawURLEncoding.EncodeToString([]byte(mark)), nil
}

type listed interface {
	paged
	GetFilter() string
	GetOrderBy() string
}

// row is what lists filter and order by.
type row map[string]string

// listOf filters, orders and cuts a list. The fields of row are id, name, created_at and more.
func listOf[T any](c *Cloud, all []T, fields func(T) row, ask listed) (page []T, next string, why *refusal) {
	keep, why := c.filter(ask.GetFilter())
	if why != nil {
		return nil, "", why
	}
	all = slices.DeleteFunc(all, func(item T) bool { return !keep(fields(item)) })
	by, direction, _ := strings.Cut(ask.GetOrderBy(), " ")
	field, known := map[string]string{
		"": "id", "id": "id", "name": "name", "createdAt": "created_at", "created_at": "created_at",
	}[by]
	if !known || direction != "" && direction != "asc" && direction != "desc" {
		return nil, "", bad("order_by", "Cannot order by %q", ask.GetOrderBy())
	}
	slices.SortStableFunc(all, func(a, b T) int {
		order := strings.Compare(fields(a)[field], fields(b)[field])
		if direction == "desc" {
			return -order
		}
		return order
	})
	return pageOf(c, all, func(item T) string { return fields(item)["id"] }, ask)
}

var (
	condition = regexp.MustCompile(`^\s*([A-Za-z_.]+)\s*(!=|=|NOT\s+IN\b|IN\b)\s*`)
	quoted    = regexp.MustCompile(`^\s*("((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')\s*`)
	conjunct  = regexp.MustCompile(`^AND\b`)
	escape    = regexp.MustCompile(`\\(.)`)
)

// filter reads a filter expression: conditions united by AND.
func (c *Cloud) filter(text string) (keep func(row) bool, why *refusal) {
	if len(text) > longestFilter {
		return nil, bad("filter", "Size must be less than or equal to %d", longestFilter)
	}
	allowed := c.rules.FilterFields
	if allowed == nil {
		allowed = []string{"name"}
	}
	var conditions []func(row) bool
	for rest := text; strings.TrimSpace(rest) != ""; {
		head := condition.FindStringSubmatch(rest)
		if head == nil {
			return nil, bad("filter", "Syntax error at %q", rest)
		}
		field := head[1]
		if !slices.Contains(allowed, field) {
			return nil, bad("filter", "Filtering by %q is not supported", field)
		}
		values, after, ok := readValues(rest[len(head[0]):], strings.HasSuffix(head[2], "IN"))
		if !ok {
			return nil, bad("filter", "Syntax error at %q", rest)
		}
		negated := strings.HasPrefix(head[2], "N") || head[2] == "!="
		conditions = append(conditions, func(r row) bool { return slices.Contains(values, r[field]) != negated })
		if after != "" {
			joint := conjunct.FindString(after)
			if joint == "" || strings.TrimSpace(after[len(joint):]) == "" {
				return nil, bad("filter", "Syntax error at %q", after)
			}
			after = after[len(joint):]
		}
		rest = after
	}
	return func(r row) bool {
		return !slices.ContainsFunc(conditions, func(holds func(row) bool) bool { return !holds(r) })
	}, nil
}

// readValues reads a value, or several in parentheses, and returns what follows.
func readValues(text string, several bool) (values []string, rest string, ok bool) {
	if !several {
		value, after, found := readValue(text)
		return []string{value}, after, found
	}
	rest, ok = strings.CutPrefix(text, "(")
	for ok {
		var value string
		if value, rest, ok = readValue(rest); !ok {
			break
		}
		values = append(values, value)
		if after, more := strings.CutPrefix(rest, ","); more {
			rest = after
			continue
		}
		rest, ok = strings.CutPrefix(rest, ")")
		return values, strings.TrimLeft(rest, " "), ok
	}
	return nil, "", false
}

// readValue reads a quoted text and the space behind it.
func readValue(text string) (value, rest string, ok bool) {
	found := quoted.FindStringSubmatch(text)
	if found == nil {
		return "", "", false
	}
	return escape.ReplaceAllString(found[2]+found[3], "$1"), text[len(found[0]):], true
}
