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

// Pages reads a list in pages that are numbered from 1.
type Pages[T any] struct {
	// Largest is the size of the largest page. Half of it is a size that the cloud takes, too.
	Largest int
	// Read reads the page of a number where all have a size, and says whether it is the last. Behind the end of a list it is empty.
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

// Complete reads all pages of a list whose order does not change. Where a cloud numbers its pages, an entry that goes away moves all
// behind it up by one, and one of them may move from a page that is still to be read onto one that was. So each page is of a size
// that makes it begin before the end of what was read: while its first entry was read before, nothing was missed between. Where it was
// not, the list is read on from further in front. It ends with a page that is shorter than asked for, because what a page says of the
// next one may be younger than its entries. The result holds every entry that existed all the time, or is an error (failure P5); one
// that went away meanwhile may be in it.
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

// behind returns the page that begins before the end of the first entries of a list, with a twentieth of the largest page in common,
// and goes as far as one can behind it.
func (p Pages[T]) behind(read int) (number, size int) {
	from, end := max(0, read-max(1, p.Largest/20)), 0
	for s := p.Largest; s > p.Largest/2; s-- {
		if n := from/s + 1; n*s > end {
			number, size, end = n, s, n*s
		}
	}
	return number, size
}

// Listing is a list that callers read in parts.
type Listing[T any] struct {
	// Of says in tokens which list of whose volumes it is: another one's tokens are stale.
	Of string
	// ID is an entry's id, and Compare the order of ids.
	ID      func(T) string
	Compare func(a, b string) int
	// Read reads the whole list.
	Read func(ctx context.Context) ([]T, error)
}

// Part reads the part of the list that a page asks for, in the order of the ids, and the token of the next one. A token has the last id of
// the page before, so entries that come and go, that one included, move nothing. fault.StalePage before anything is sent.
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

// tokenMark stands in a token between an id and its check, and in no id.
const tokenMark = "."

// token is that of the page which begins behind an id. It has a check because any number could be an id.
func (l Listing[T]) token(id string) string {
	if id == "" {
		return ""
	}
	check := fnv.New32a()
	_, _ = check.Write([]byte(l.Of + tokenMark + id))
	return id + tokenMark + strconv.FormatUint(uint64(check.Sum32()), 36)
}
