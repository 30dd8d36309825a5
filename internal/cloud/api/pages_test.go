package api_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// shelf is a list in numbered pages that changes with its reads.
type shelf struct {
	entries []int
	reads   int
	// change is called after each read of entries; with late before it is seen whether the page is the last.
	change func(s *shelf)
	late   bool
}

func (s *shelf) pages(largest int) api.Pages[int] {
	return api.Pages[int]{Largest: largest, Read: func(_ context.Context, number, size int) ([]int, bool, error) {
		from := min(size*(number-1), len(s.entries))
		to := min(from+size, len(s.entries))
		page := slices.Clone(s.entries[from:to])
		s.reads++
		last := to == len(s.entries)
		s.change(s)
		if s.late {
			last = to >= len(s.entries)
		}
		return page, last, nil
	}}
}

func sequence(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// P5: a list of an account in which volumes come and go all the time is complete, and its reading ends.
func TestAListOfABusyAccountIsComplete(t *testing.T) {
	for seed := range uint64(2000) {
		chance := rand.New(rand.NewPCG(seed, 1))
		s := &shelf{entries: sequence(20 + chance.IntN(60)), late: seed%2 == 0, change: func(s *shelf) {
			if chance.IntN(8) > 0 || len(s.entries) == 0 {
				return
			}
			i := chance.IntN(len(s.entries))
			s.entries = slices.Delete(s.entries, i, i+1)
			switch at := 1000 + s.reads; chance.IntN(3) {
			case 0:
				s.entries = append(s.entries, at)
			case 1:
				s.entries = slices.Insert(s.entries, 0, at)
			}
		}}
		before := slices.Clone(s.entries)
		got, err := api.Complete(t.Context(), s.pages(10), strconv.Itoa)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		whole(t, fmt.Sprint("seed ", seed), got, before, s.entries)
	}
}

// whole fails the test unless a list has each entry that was there before and after it was read, and none twice.
func whole(t *testing.T, name string, got, before, after []int) {
	t.Helper()
	for _, entry := range before {
		if slices.Contains(after, entry) && !slices.Contains(got, entry) {
			t.Errorf("%s: the list of %v lacks %d", name, got, entry)
		}
	}
	if slices.Sort(got); len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("%s: the list has an entry twice: %v", name, got)
	}
}

// P5: completeness costs few reads: at most 1.2 times the pages.
func TestAListIsReadAboutOnce(t *testing.T) {
	for _, entries := range []int{0, 1, 199, 200, 201, 1000, 5000, 20_000} {
		for _, largest := range []int{200, 500} {
			still := &shelf{entries: sequence(entries), change: func(*shelf) {}}
			got, err := api.Complete(t.Context(), still.pages(largest), strconv.Itoa)
			if bar := max(1, (entries+largest-1)/largest*6/5+1); err != nil || !slices.Equal(got, still.entries) || still.reads > bar {
				t.Errorf("%d entries in pages of %d: Complete = %d entries, %v after %d reads, want all and at most %d", entries, largest, len(got), err, still.reads, bar)
			}
		}
	}
}

// P9: a list that changes with each read, or whose pages do not end, is an error.
func TestAListThatNeverStandsStillIsAnError(t *testing.T) {
	never := &shelf{entries: sequence(90), change: func(s *shelf) { s.entries = sequence((s.reads + 1) * 90)[s.reads*90:] }}
	_, err := api.Complete(t.Context(), never.pages(20), strconv.Itoa)
	cloudtest.Want(t, err, fault.Unavailable, "the list changed")
	if never.reads > 20 {
		t.Errorf("that is known after %d reads", never.reads)
	}
	endless := &shelf{entries: sequence(1 << 20), change: func(*shelf) {}}
	_, err = api.Complete(t.Context(), endless.pages(500), strconv.Itoa)
	cloudtest.Want(t, err, fault.Unavailable, "more than")
}

// walk reads a list in pages of callers. restarts counts how often a token was stale and the list was read from its beginning.
func walk(t *testing.T, l api.Listing[int], most int) (all []int, pages, restarts int) {
	t.Helper()
	for page := (cloud.Page{Most: most}); ; {
		part, next, err := l.Part(t.Context(), page)
		switch {
		case fault.Of(err) == fault.StalePage && restarts < 100:
			all, pages, page.Token = nil, 0, ""
			restarts++
			continue
		case err != nil || len(part) > most || len(next) > 128 || pages > 20_000:
			t.Fatalf("Part = %d entries, %q, %v", len(part), next, err)
		}
		all, pages = append(all, part...), pages+1
		if page.Token = next; next == "" {
			return all, pages, restarts
		}
	}
}

// P5: a list that is read in pages of callers is complete too, and has no entry twice.
func TestPartsOfAListOfABusyAccountAreComplete(t *testing.T) {
	restarts, lists := 0, 0
	for seed := range uint64(3000) {
		chance, newest := rand.New(rand.NewPCG(seed, 2)), 1000
		s := &shelf{entries: sequence(20 + chance.IntN(80)), late: seed%2 == 0, change: func(s *shelf) {
			if chance.IntN(8) > 0 {
				return
			}
			for range 1 + chance.IntN(3) {
				if len(s.entries) > 0 {
					i := chance.IntN(len(s.entries))
					s.entries = slices.Delete(s.entries, i, i+1)
				}
				switch chance.IntN(3) {
				case 0:
					s.entries = append(s.entries, newest)
				case 1:
					s.entries = slices.Insert(s.entries, 0, newest)
				}
				newest++
			}
		}}
		before := slices.Clone(s.entries)
		list := s.pages(10).Listing("entries", strconv.Itoa)
		if seed%3 == 0 {
			list.Keep = func(n int) bool { return n%3 > 0 }
		}
		got, _, again := walk(t, list, 1+chance.IntN(30))
		lists, restarts = lists+1, restarts+again
		before = slices.DeleteFunc(before, func(entry int) bool { return list.Keep != nil && !list.Keep(entry) })
		whole(t, fmt.Sprint("seed ", seed), got, before, s.entries)
	}
	t.Logf("%d lists, %d restarts", lists, restarts)
}

// A caller's page costs the cloud's pages that it spans, and one for its beginning and its end.
func TestAPartOfAListReadsItsPagesOnly(t *testing.T) {
	for _, entries := range []int{5000, 20_000} {
		for _, largest := range []int{200, 500} {
			for _, most := range []int{1, 100, largest, 1000, 5000} {
				still := &shelf{entries: sequence(entries), change: func(*shelf) {}}
				got, pages, restarts := walk(t, still.pages(largest).Listing("entries", strconv.Itoa), most)
				if bar := pages * (most*6/5/largest + 2); !slices.Equal(got, still.entries) || restarts > 0 || still.reads > bar {
					t.Errorf("%d entries in pages of %d, %d for a caller: %d entries in %d pages, %d restarts, %d reads, want at most %d", entries, largest, most, len(got), pages, restarts, still.reads, bar)
				}
				t.Logf("%d entries in pages of %d, %d for a caller: %d pages, %d reads", entries, largest, most, pages, still.reads)
			}
		}
	}
}

func TestPartsOfAList(t *testing.T) {
	for name, tc := range map[string]struct {
		remove []int // after the page of 4, 5 and 6
		insert int   // at the beginning
		want   []int
	}{
		"nothing changed":                        {nil, 0, []int{7, 8, 9}},
		"the last entry was deleted":             {[]int{6}, 0, []int{7, 8, 9}},
		"two were deleted":                       {[]int{5, 6}, 0, []int{7, 8, 9}},
		"all before were deleted, but for one":   {[]int{0, 1, 2, 3, 5, 6}, 0, []int{7, 8, 9}},
		"the next was deleted":                   {[]int{7}, 0, []int{8, 9}},
		"many came before":                       {nil, 300, []int{7, 8, 9}},
		"many came before, and two were deleted": {[]int{5, 6}, 300, []int{7, 8, 9}},
		"all of the token were deleted":          {[]int{4, 5, 6}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &shelf{entries: sequence(10), change: func(*shelf) {}}
			list := s.pages(20).Listing("entries", strconv.Itoa)
			_, first, err := list.Part(t.Context(), cloud.Page{Most: 4})
			cloudtest.Must(t, err)
			part, next, err := list.Part(t.Context(), cloud.Page{Most: 3, Token: first})
			cloudtest.Must(t, err)
			if !slices.Equal(part, []int{4, 5, 6}) {
				t.Fatalf("the second page has %v", part)
			}
			s.entries = slices.DeleteFunc(s.entries, func(n int) bool { return slices.Contains(tc.remove, n) })
			for n := range tc.insert {
				s.entries = slices.Insert(s.entries, 0, 1000+n)
			}
			part, last, err := list.Part(t.Context(), cloud.Page{Most: 3, Token: next})
			if tc.want == nil {
				cloudtest.Want(t, err, fault.StalePage, "deleted meanwhile")
			} else if !slices.Equal(part, tc.want) || last != "" || err != nil {
				t.Errorf("the third page has %v, %q, %v, want %v and no next one", part, last, err, tc.want)
			}
		})
	}
}

// A place that has moved far away is found by reading the whole list once.
func TestAPlaceThatMovesFarAway(t *testing.T) {
	s := &shelf{entries: sequence(5000), change: func(*shelf) {}}
	list := s.pages(200).Listing("entries", strconv.Itoa)
	_, next, err := list.Part(t.Context(), cloud.Page{Most: 4000})
	cloudtest.Must(t, err)
	s.entries, s.reads = append(sequence(8000)[5000:], s.entries...), 0
	part, _, err := list.Part(t.Context(), cloud.Page{Token: next})
	if err != nil || !slices.Equal(part, sequence(5000)[4000:]) || s.reads > 8000/200*6/5+1 {
		t.Errorf("the second page has %d entries, %v after %d reads", len(part), err, s.reads)
	}
}

// A number that no page returned is not taken for a token, and neither is another list's.
func TestATokenThatNoPageReturnedIsStale(t *testing.T) {
	s := &shelf{entries: sequence(9), change: func(*shelf) {}}
	list, others := s.pages(10).Listing("one", strconv.Itoa), s.pages(10).Listing("two", strconv.Itoa)
	_, token, err := list.Part(t.Context(), cloud.Page{Most: 1})
	cloudtest.Must(t, err)
	_, anothers, err := others.Part(t.Context(), cloud.Page{Most: 1})
	cloudtest.Must(t, err)
	reads := s.reads
	for _, other := range []string{"1", "1.", ".", "..", "2" + token[1:], "1" + token, token + "x", token + "." + token, anothers} {
		_, _, err := list.Part(t.Context(), cloud.Page{Token: other})
		cloudtest.Want(t, err, fault.StalePage)
	}
	if s.reads > reads {
		t.Error("the list was read")
	}
}

func TestIDsThatAreNumbers(t *testing.T) {
	for id, want := range map[string]int{"1": 1, "9007199254740993": 9007199254740993, "": 0, "0": 0, "-1": 0, "+1": 0, "01": 0, "1x": 0, "1e3": 0, "99999999999999999999": 0} {
		if n := api.Number(id); n != want || api.IsNumber(id) != (want > 0) {
			t.Errorf("Number(%q) = %d", id, n)
		}
	}
}
