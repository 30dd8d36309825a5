package api

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// maxPasses is how many times a list of several pages is read before Tokens.Complete returns an error.
const maxPasses = 4

// Tokens is a list in pages, each of which has the token of the next one. What a token stands for is the cloud's secret.
type Tokens[T any] struct {
	// ID returns an entry's id.
	ID func(T) string
	// Read reads the page with a token, the first with "". It returns the token of the next one; "": there is none.
	Read func(ctx context.Context, token string) (page []T, next string, err error)
}

// All reads one page after the other.
func (l Tokens[T]) All(ctx context.Context) ([]T, error) {
	all, _, err := l.all(ctx)
	return all, err
}

func (l Tokens[T]) all(ctx context.Context) (all []T, pages int, err error) {
	for token := ""; pages < maxPages && len(all) <= maxEntries; {
		page, next, err := l.Read(ctx, token)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, page...)
		if pages++; next == "" {
			return all, pages, nil
		}
		token = next
	}
	return nil, 0, fmt.Errorf("the list has more than %d pages or %d entries: %w", maxPages, maxEntries, fault.Unavailable)
}

// Complete reads all pages of a list. A deletion may move an entry from a later page to one that was read already, so Complete reads a list
// of several pages again until a reading has all entries of the one before: then nothing was deleted meanwhile. The result has every entry
// that existed all the time, or is an error (failure P5).
func (l Tokens[T]) Complete(ctx context.Context) ([]T, error) {
	var before []T
	for pass := range maxPasses {
		all, pages, err := l.all(ctx)
		if err != nil || pages == 1 {
			return all, err
		}
		there := map[string]bool{}
		all = slices.DeleteFunc(all, func(entry T) bool { // a creation moves an entry to the next page, too
			twice := there[l.ID(entry)]
			there[l.ID(entry)] = true
			return twice
		})
		if pass > 0 && !slices.ContainsFunc(before, func(entry T) bool { return !there[l.ID(entry)] }) {
			return all, nil
		}
		before = all
	}
	return nil, fmt.Errorf("an entry was deleted each of the %d times that the list was read: %w", maxPasses, fault.Unavailable)
}

// Listing returns the list for callers, ordered by ids. Each of its parts reads the whole list: a place in it would need the cloud's tokens,
// which may be longer than those of CSI.
func (l Tokens[T]) Listing(of string) Listing[T] {
	return Listing[T]{Of: of, ID: l.ID, After: func(ctx context.Context, from Place, _ func([]T) bool) ([]T, int, error) {
		all, err := l.Complete(ctx)
		slices.SortFunc(all, func(a, b T) int { return strings.Compare(l.ID(a), l.ID(b)) })
		before := 0
		if n := len(from.Last); n > 0 {
			before = sort.Search(len(all), func(i int) bool { return l.ID(all[i]) > from.Last[n-1] })
		}
		return all[before:], len(all), err
	}}
}
