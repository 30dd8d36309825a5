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
	// maxPages and maxEntries bound a list whose end never comes.
	maxPages, maxEntries = 200, 40_000
	// maxTries is how many times two pages are read before Complete returns an error.
	maxTries = 10
)

// Pages is a list in pages that are numbered from 1.
type Pages[T any] struct {
	// Largest is the maximum size of a page. The cloud also accepts half of it.
	Largest int
	// Read reads the page with a number at a page size, and reports whether it is the last. A page after the end is empty.
	Read func(ctx context.Context, number, size int) (page []T, last bool, err error)
}

// All reads one page after the other.
func (p Pages[T]) All(ctx context.Context) (all []T, err error) {
	for number := 1; number <= maxPages; number++ {
		page, last, err := p.Read(ctx, number, p.Largest)
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

// Complete reads all pages of a list with a stable order. With numbered pages, a deletion moves all later entries up by one, and one of
// them may move from a later page to one that was read already. So Complete chooses a page size with which the next page overlaps the
// entries that were read: if its first entry is known, none was missed in between. Otherwise it continues at an earlier page. The list
// ends with a page that is shorter than its size; what a page tells about the next one may be newer than its entries. The result has
// every entry that existed all the time, or is an error (failure P5); it may have entries that were deleted meanwhile.
func Complete[T any, K comparable](ctx context.Context, p Pages[T], id func(T) K) ([]T, error) {
	var all []T
	known := map[K]bool{}
	read, farthest, tries := 0, 0, 0
	for range 2 * maxPages {
		number, size := p.behind(read)
		page, last, err := p.Read(ctx, number, size)
		if err != nil {
			return nil, err
		}
		if number > 1 && (len(page) == 0 || !known[id(page[0])]) {
			read = max(0, read-size)
		} else {
			for _, entry := range page {
				if !known[id(entry)] {
					known[id(entry)], all = true, append(all, entry)
				}
			}
			if last && len(page) < size {
				return all, nil
			}
			read = (number-1)*size + len(page)
		}
		switch tries++; {
		case read > farthest:
			farthest, tries = read, 0
		case tries == maxTries:
			return nil, fmt.Errorf("the list changed each of the %d times that it was read behind its first %d entries: %w", maxTries, farthest, fault.Unavailable)
		}
		if len(all) > maxEntries {
			return nil, fmt.Errorf("the list has more than %d entries: %w", maxEntries, fault.Unavailable)
		}
	}
	return nil, fmt.Errorf("the list has more than %d pages: %w", maxPages, fault.Unavailable)
}

// behind returns the number and size of the page that overlaps the entries read so far by a twentieth of the largest page, and reaches as
// far as possible beyond them.
func (p Pages[T]) behind(read int) (number, size int) {
	from, end := max(0, read-max(1, p.Largest/20)), 0
	for s := p.Largest; s > p.Largest/2; s-- {
		if n := from/s + 1; n*s > end {
			number, size, end = n, s, n*s
		}
	}
	return number, size
}

// Listing is a list that callers read page by page.
type Listing[T any] struct {
	// Of identifies the list in its tokens: tokens of another list are stale.
	Of string
	// ID returns an entry's id, and Compare compares ids.
	ID      func(T) string
	Compare func(a, b string) int
	// Read reads the whole list.
	Read func(ctx context.Context) ([]T, error)
}

// Part returns one page of the list, ordered by id, and the token of the next page. A token contains the last id of the page before, so
// creations and deletions, even of that entry, move nothing. fault.StalePage for a token of another list, before anything is sent.
func (l Listing[T]) Part(ctx context.Context, page cloud.Page) (part []T, next string, err error) {
	behind, _, _ := strings.Cut(page.Token, tokenMark)
	if page.Token != l.token(behind) {
		return nil, "", fmt.Errorf("token %.80q: %w", page.Token, fault.StalePage)
	}
	if part, err = l.Read(ctx); err != nil {
		return nil, "", err
	}
	slices.SortFunc(part, func(a, b T) int { return l.Compare(l.ID(a), l.ID(b)) })
	if behind != "" {
		part = slices.DeleteFunc(part, func(v T) bool { return l.Compare(l.ID(v), behind) <= 0 })
	}
	if page.Most > 0 && len(part) > page.Most {
		part = part[:page.Most]
		next = l.token(l.ID(part[len(part)-1]))
	}
	return part, next, nil
}

// tokenMark separates the id and the checksum in a token; no id contains it.
const tokenMark = "."

// token returns the token of the page after an id. It has a checksum because any number could be an id.
func (l Listing[T]) token(id string) string {
	if id == "" {
		return ""
	}
	check := fnv.New32a()
	_, _ = check.Write([]byte(l.Of + tokenMark + id))
	return id + tokenMark + strconv.FormatUint(uint64(check.Sum32()), 36)
}
