package api_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
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
		got, err := api.Complete(t.Context(), s.pages(10), func(n int) int { return n })
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, entry := range before {
			if slices.Contains(s.entries, entry) && !slices.Contains(got, entry) {
				t.Errorf("seed %d: the list of %v lacks %d", seed, got, entry)
			}
		}
		if slices.Sort(got); len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("seed %d: the list has an entry twice: %v", seed, got)
		}
	}
}

// P5: completeness costs few reads: at most 1.2 times the pages.
func TestAListIsReadAboutOnce(t *testing.T) {
	for _, entries := range []int{0, 1, 199, 200, 201, 1000, 5000, 20_000} {
		for _, largest := range []int{200, 500} {
			still := &shelf{entries: sequence(entries), change: func(*shelf) {}}
			got, err := api.Complete(t.Context(), still.pages(largest), func(n int) int { return n })
			if bar := max(1, (entries+largest-1)/largest*6/5+1); err != nil || !slices.Equal(got, still.entries) || still.reads > bar {
				t.Errorf("%d entries in pages of %d: Complete = %d entries, %v after %d reads, want all and at most %d", entries, largest, len(got), err, still.reads, bar)
			}
		}
	}
}

func TestAListThatNeverStandsStillIsAnError(t *testing.T) {
	never := &shelf{entries: sequence(90), change: func(s *shelf) { s.entries = sequence((s.reads + 1) * 90)[s.reads*90:] }}
	_, err := api.Complete(t.Context(), never.pages(20), func(n int) int { return n })
	cloudtest.Want(t, err, fault.Unavailable, "the list changed")
	if never.reads > 20 {
		t.Errorf("that is known after %d reads", never.reads)
	}
	endless := &shelf{entries: sequence(1 << 20), change: func(*shelf) {}}
	_, err = api.Complete(t.Context(), endless.pages(500), func(n int) int { return n })
	cloudtest.Want(t, err, fault.Unavailable, "more than")
}

func listing(of string, compare func(a, b string) int, ids ...string) api.Listing[string] {
	return api.Listing[string]{
		Of: of, ID: func(s string) string { return s }, Compare: compare,
		Read: func(context.Context) ([]string, error) { return slices.Clone(ids), nil },
	}
}

func TestPartsOfAList(t *testing.T) {
	behind := func(id string) string { // the token of the page that begins there
		_, token, err := listing("a", strings.Compare, id, "zz").Part(t.Context(), cloud.Page{Most: 1})
		cloudtest.Must(t, err)
		return token
	}
	for name, tc := range map[string]struct {
		most int
		from string
		want []string
		next string
	}{
		"all":                      {0, "", []string{"a", "b", "c", "d"}, ""},
		"the first page":           {2, "", []string{"a", "b"}, behind("b")},
		"the last page":            {2, behind("b"), []string{"c", "d"}, ""},
		"a token that has gone":    {2, behind("aa"), []string{"b", "c"}, behind("c")},
		"a token behind the end":   {0, behind("z"), nil, ""},
		"a page as long as it all": {4, "", []string{"a", "b", "c", "d"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			part, next, err := listing("a", strings.Compare, "d", "b", "a", "c").Part(t.Context(), cloud.Page{Most: tc.most, Token: tc.from})
			if !slices.Equal(part, tc.want) || next != tc.next || err != nil {
				t.Errorf("Part = %q, %q, %v, want %q, %q", part, next, err, tc.want, tc.next)
			}
		})
	}
}

// Where ids are numbers, a number that no page returned is not taken for a token, and neither is another list's.
func TestATokenThatNoPageReturnedIsStale(t *testing.T) {
	list, others := listing("one", api.ByNumber, "1", "2"), listing("two", api.ByNumber, "1", "2")
	_, token, err := list.Part(t.Context(), cloud.Page{Most: 1})
	cloudtest.Must(t, err)
	_, anothers, err := others.Part(t.Context(), cloud.Page{Most: 1})
	cloudtest.Must(t, err)
	list.Read = func(context.Context) ([]string, error) { t.Error("the list is read"); return nil, nil }
	for _, other := range []string{"1", "1.", ".", "2" + token[1:], token + "x", token + "." + token, anothers} {
		_, _, err := list.Part(t.Context(), cloud.Page{Token: other})
		cloudtest.Want(t, err, fault.StalePage)
	}
}

func TestIDsThatAreNumbers(t *testing.T) {
	for id, want := range map[string]int{"1": 1, "9007199254740993": 9007199254740993, "": 0, "0": 0, "-1": 0, "+1": 0, "01": 0, "1x": 0, "1e3": 0, "99999999999999999999": 0} {
		if n := api.Number(id); n != want || api.IsNumber(id) != (want > 0) {
			t.Errorf("Number(%q) = %d", id, n)
		}
	}
	if got := slices.SortedFunc(slices.Values([]string{"10", "9", "100", "11"}), api.ByNumber); !slices.Equal(got, []string{"9", "10", "11", "100"}) {
		t.Errorf("by number: %q", got)
	}
}
