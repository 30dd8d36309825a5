package yandex

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	usualPage    = 100
	largestPage  = 1000
	longestToken = 100
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
		if at < 0 { // it has gone
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

// row is what a list is filtered by and cut at.
type row struct{ id, name, status string }

var byName = regexp.MustCompile(`^name="([^"\\]*)"$`)

// listOf filters a list by the name and cuts it, in the order of the ids.
func listOf[T any](c *Cloud, all []T, fields func(T) row, ask listed) (page []T, next string, why *refusal) {
	if ask.GetOrderBy() != "" {
		return nil, "", bad("order_by", "The emulator orders by id")
	}
	if text := ask.GetFilter(); text != "" {
		asked := byName.FindStringSubmatch(text)
		if asked == nil {
			return nil, "", bad("filter", "The emulator filters by name")
		}
		all = slices.DeleteFunc(all, func(item T) bool { return fields(item).name != asked[1] })
	}
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(fields(a).id, fields(b).id) })
	return pageOf(c, all, func(item T) string { return fields(item).id }, ask)
}
