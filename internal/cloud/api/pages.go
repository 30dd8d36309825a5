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

// Place is a place in a list. The zero Place is its beginning.
type Place struct {
	// Before is how many entries were before the place when it was read.
	Before int
	// Last has the ids of the last ones of them.
	Last []string
}

// hasAll reports whether Last has all entries before the place.
func (p Place) hasAll() bool { return p.Before <= len(p.Last) }

// Complete reads all pages of a list with a stable order. The result has every entry that existed all the time, or is an error (failure
// P5); it may have entries that were deleted meanwhile.
func Complete[T any](ctx context.Context, p Pages[T], id func(T) string) ([]T, error) {
	all, _, err := p.After(ctx, Place{}, id, func([]T) bool { return false })
	return all, err
}

// After reads a list with a stable order from a place until it ends or enough entries were read. behind is the number of entries up to
// there, when the last page was read. It reads the pages there, and the whole list only if the place has moved away. The result is as
// Complete's. fault.StalePage if all entries in Last were deleted.
func (p Pages[T]) After(ctx context.Context, from Place, id func(T) string, enough func([]T) bool) (some []T, behind int, err error) {
	some, behind, found, err := p.read(ctx, from, id, enough)
	if found || err != nil {
		return some, behind, err
	}
	all, behind, _, err := p.read(ctx, Place{}, id, func([]T) bool { return false })
	if err != nil {
		return nil, 0, err
	}
	end := endOf(all, func(entry T) bool { return slices.Contains(from.Last, id(entry)) })
	if end == 0 {
		return nil, 0, fmt.Errorf("the entries at the end of the page before were deleted meanwhile: %w", fault.StalePage)
	}
	return all[end:], behind, nil
}

// read reads from a place on; found is false if the place is not on the page where it should be. With numbered pages, a deletion moves all
// later entries up by one, and one of them may move from a later page to one that was read already. So read chooses a page size with which
// the next page overlaps the entries that were read: if it has one of them, none was missed in between. Otherwise it continues at an
// earlier page. The list ends with a page that is shorter than its size; what a page tells about the next one may be newer than its entries.
func (p Pages[T]) read(ctx context.Context, from Place, id func(T) string, enough func([]T) bool) (all []T, behind int, found bool, err error) {
	known := map[string]bool{}
	for _, last := range from.Last {
		known[last] = true
	}
	read, farthest, tries := from.Before, from.Before, 0
	for range 2 * maxPages {
		number, size := p.behind(read)
		page, last, err := p.Read(ctx, number, size)
		if err != nil {
			return nil, 0, false, err
		}
		end := endOf(page, func(entry T) bool { return known[id(entry)] })
		switch {
		case end == 0 && len(all) == 0 && (number > 1 || !from.hasAll()):
			return nil, 0, false, nil
		case end == 0 && number > 1:
			read = max(0, read-size)
		default:
			for _, entry := range page[end:] {
				known[id(entry)], all = true, append(all, entry)
			}
			read = (number-1)*size + len(page)
			if last && len(page) < size || enough(all) {
				return all, read, true, nil
			}
		}
		switch tries++; {
		case read > farthest:
			farthest, tries = read, 0
		case tries == maxTries:
			return nil, 0, false, fmt.Errorf("the list changed each of the %d times that it was read behind its first %d entries: %w", maxTries, farthest, fault.Unavailable)
		}
		if len(all) > maxEntries {
			return nil, 0, false, fmt.Errorf("the list has more than %d entries: %w", maxEntries, fault.Unavailable)
		}
	}
	return nil, 0, false, fmt.Errorf("the list has more than %d pages: %w", maxPages, fault.Unavailable)
}

// endOf returns the index after the last entry for which is returns true; 0 if there is none.
func endOf[T any](page []T, is func(T) bool) int {
	for end := len(page); end > 0; end-- {
		if is(page[end-1]) {
			return end
		}
	}
	return 0
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
	// ID returns an entry's id.
	ID func(T) string
	// Keep reports whether the list has an entry; nil: it has all.
	Keep func(T) bool
	// After reads the entries after a place in a stable order, as Pages.After.
	After func(ctx context.Context, from Place, enough func([]T) bool) (some []T, behind int, err error)
}

// Listing returns the list for callers.
func (p Pages[T]) Listing(of string, id func(T) string) Listing[T] {
	return Listing[T]{Of: of, ID: id, After: func(ctx context.Context, from Place, enough func([]T) bool) ([]T, int, error) {
		return p.After(ctx, from, id, enough)
	}}
}

// Part returns one page of the list and the token of the next. A token contains the last ids up to its place, so creations and deletions
// move nothing. fault.StalePage for a token of another list, before anything is sent, and if all entries in the token were deleted.
func (l Listing[T]) Part(ctx context.Context, page cloud.Page) (part []T, next string, err error) {
	from, err := l.place(page.Token)
	if err != nil {
		return nil, "", err
	}
	kept := func(all []T) (some []T) {
		for _, entry := range all {
			if l.Keep == nil || l.Keep(entry) {
				some = append(some, entry)
			}
		}
		return some
	}
	all, behind, err := l.After(ctx, from, func(all []T) bool { return page.Most > 0 && len(all) > page.Most && len(kept(all)) > page.Most })
	if err != nil {
		return nil, "", err
	}
	if part = kept(all); page.Most == 0 || len(part) <= page.Most {
		return part, "", nil
	}
	part = part[:page.Most]
	end := endOf(all, func(entry T) bool { return l.ID(entry) == l.ID(part[len(part)-1]) })
	for _, entry := range all[max(0, end-lastIDs):end] {
		from.Last = append(from.Last, l.ID(entry))
	}
	return part, l.token(Place{Before: max(0, behind-len(all)+end), Last: from.Last[max(0, len(from.Last)-lastIDs):]}), nil
}

const (
	// tokenMark separates the parts of a token; no id contains it.
	tokenMark = "."
	// lastIDs is how many ids a token has: with three UUIDs it is below the 128 bytes of CSI's strings.
	lastIDs = 3
)

// token returns the token of a place. It has a checksum because any number could be an id.
func (l Listing[T]) token(p Place) string {
	text := strings.Join(append([]string{strconv.Itoa(p.Before)}, p.Last...), tokenMark)
	check := fnv.New32a()
	_, _ = check.Write([]byte(l.Of + tokenMark + text))
	return text + tokenMark + strconv.FormatUint(uint64(check.Sum32()), 36)
}

// place returns the place of a token.
func (l Listing[T]) place(token string) (p Place, err error) {
	if token == "" {
		return Place{}, nil
	}
	if words := strings.Split(token, tokenMark); len(words) > 2 {
		p.Last = words[1 : len(words)-1]
		p.Before, _ = strconv.Atoi(words[0])
	}
	if token != l.token(p) {
		return Place{}, fmt.Errorf("token %.80q: %w", token, fault.StalePage)
	}
	return p, nil
}
