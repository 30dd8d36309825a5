package api

import (
	"context"
	"fmt"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// maxPages and maxEntries bound a list, whatever the cloud says of its end.
	maxPages, maxEntries = 200, 40_000
	// maxPasses is how often a list of several pages is read before it counts as one that cannot be read.
	maxPasses = 4
)

// Pages reads one page of a list, by its number from 1, and says whether it is the last.
type Pages[T any] func(ctx context.Context, number int) (page []T, last bool, err error)

// All reads one page after the other.
func (p Pages[T]) All(ctx context.Context) (all []T, pages []int, err error) {
	for number := 1; number <= maxPages; number++ {
		page, last, err := p(ctx, number)
		if err != nil {
			return nil, nil, err
		}
		all, pages = append(all, page...), append(pages, len(page))
		switch {
		case len(all) > maxEntries:
			return nil, nil, fmt.Errorf("the list has more than %d entries: %w", maxEntries, fault.Unavailable)
		case last:
			return all, pages, nil
		}
	}
	return nil, nil, fmt.Errorf("the list has more than %d pages: %w", maxPages, fault.Unavailable)
}

// Complete reads all pages of a list. Where a cloud numbers its pages, an entry that goes away moves all
// behind it up by one, and one of them is on no page that is read. Therefore a list of several pages
// counts only if all but the last are read a second time and are the same: what could have moved an
// entry unseen has changed one of them. The result is complete, or an error (failure P5).
func Complete[T any, K comparable](ctx context.Context, read Pages[T], id func(T) K) ([]T, error) {
	for range maxPasses {
		all, pages, err := read.All(ctx)
		if err != nil {
			return nil, err
		}
		same, err := sameAgain(ctx, read, id, all, pages)
		if err != nil || same {
			return all, err
		}
	}
	return nil, fmt.Errorf("the list changed each of the %d times that it was read: %w", maxPasses, fault.Unavailable)
}

// sameAgain reads all pages but the last again and compares.
func sameAgain[T any, K comparable](ctx context.Context, read Pages[T], id func(T) K, all []T, pages []int) (bool, error) {
	at := 0
	for i, n := range pages[:len(pages)-1] {
		again, _, err := read(ctx, i+1)
		if err != nil {
			return false, err
		}
		if !slices.EqualFunc(again, all[at:at+n], func(a, b T) bool { return id(a) == id(b) }) {
			return false, nil
		}
		at += n
	}
	return true, nil
}

// Cut returns the part of a list that the page asks for, in the order of the ids, and the token of the next
// one. A token is the last id of the page before, so entries that come and go, that one included, move nothing.
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
		next = id(part[len(part)-1])
	}
	return part, next
}
