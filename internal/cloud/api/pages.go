package api

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// maxPages and maxEntries bound a list, whatever the cloud says of its end.
	maxPages, maxEntries = 200, 40_000
	// maxTries is how often two pages are read before the list counts as one that cannot be read.
	maxTries = 10
)

// Pages reads one page of a list, by its number from 1, and says whether it is the last.
type Pages[T any] func(ctx context.Context, number int) (page []T, last bool, err error)

// All reads one page after the other.
func (p Pages[T]) All(ctx context.Context) (all []T, err error) {
	for number := 1; number <= maxPages; number++ {
		page, last, err := p(ctx, number)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		switch {
		case len(all) > maxEntries:
			return nil, fmt.Errorf("the list has more than %d entries: %w", maxEntries, fault.Unavailable)
		case last:
			return all, nil
		}
	}
	return nil, fmt.Errorf("the list has more than %d pages: %w", maxPages, fault.Unavailable)
}

// Complete reads all pages of a list. Where a cloud numbers its pages, an entry that goes away moves all
// behind it up by one, and one of them may move from a page that is still to be read onto one that was.
// Therefore the page before and the first one are read again after each page: while both are the same,
// nothing has moved across the border. Where one is not, the border is read again. The result holds every
// entry that existed all the time, or is an error (failure P5); one that went away meanwhile may be in it.
func Complete[T any, K comparable](ctx context.Context, read Pages[T], id func(T) K) ([]T, error) {
	l := list[T, K]{read: read, id: id, at: map[K]int{}}
	first, last, err := l.page(ctx, 1)
	if err != nil {
		return nil, err
	}
	before := first
	for number, tries := 2, 1; !last; tries++ {
		page, end, err := l.page(ctx, number)
		if err != nil {
			return nil, err
		}
		again, shrunk, err := l.page(ctx, number-1)
		if err != nil {
			return nil, err
		}
		head := again
		if number > 2 {
			if head, _, err = l.page(ctx, 1); err != nil {
				return nil, err
			}
		}
		switch same := l.same(before, again) && l.same(first, head); {
		case same && !end && (number == maxPages || len(l.all) > maxEntries):
			return nil, fmt.Errorf("the list has more than %d pages or %d entries: %w", maxPages, maxEntries, fault.Unavailable)
		case same:
			before, last, number, tries = page, end, number+1, 0
		case tries == maxTries:
			return nil, fmt.Errorf("the list changed each of the %d times that its page %d was read: %w", maxTries, number-1, fault.Unavailable)
		default:
			first, before, last = head, again, shrunk
		}
	}
	return l.all, nil
}

// list gathers the entries of pages, each once and as it was read last.
type list[T any, K comparable] struct {
	read Pages[T]
	id   func(T) K
	all  []T
	at   map[K]int
}

func (l *list[T, K]) page(ctx context.Context, number int) (page []T, last bool, err error) {
	page, last, err = l.read(ctx, number)
	for _, entry := range page {
		i, known := l.at[l.id(entry)]
		if !known {
			i = len(l.all)
			l.at[l.id(entry)] = i
			l.all = append(l.all, entry)
		}
		l.all[i] = entry
	}
	return page, last, err
}

func (l *list[T, K]) same(a, b []T) bool {
	return slices.EqualFunc(a, b, func(a, b T) bool { return l.id(a) == l.id(b) })
}

// PageOf reads the token of a page, before anything is sent. It leaves the id in it, which Cut goes on behind.
func PageOf(page cloud.Page) (cloud.Page, error) {
	id, _, _ := strings.Cut(page.Token, tokenMark)
	if page.Token != tokenOf(id) {
		return page, fmt.Errorf("token %.80q: %w", page.Token, fault.StalePage)
	}
	page.Token = id
	return page, nil
}

// tokenMark stands in a token between an id and its check, and in no id.
const tokenMark = "."

// tokenOf is the token of the page that begins behind an id. It has a check because any number could be an id.
func tokenOf(id string) string {
	if id == "" {
		return ""
	}
	check := fnv.New32a()
	_, _ = check.Write([]byte(id))
	return id + tokenMark + strconv.FormatUint(uint64(check.Sum32()), 36)
}

// Cut returns the part of a list that a page from PageOf asks for, in the order of the ids, and the token of the next
// one. A token has the last id of the page before, so entries that come and go, that one included, move nothing.
func Cut[T any](all []T, page cloud.Page, compare func(a, b string) int, id func(T) string) (part []T, next string) {
	slices.SortFunc(all, func(a, b T) int { return compare(id(a), id(b)) })
	from, found := slices.BinarySearchFunc(all, page.Token, func(v T, token string) int { return compare(id(v), token) })
	switch {
	case page.Token == "":
		from = 0
	case found:
		from++
	}
	part = all[from:]
	if page.Most > 0 && len(part) > page.Most {
		part = part[:page.Most]
		next = tokenOf(id(part[len(part)-1]))
	}
	return part, next
}
