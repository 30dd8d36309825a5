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

// shelf is a list in numbered pages of three that changes with its reads.
type shelf struct {
	entries []int
	reads   int
	// change is called after each read.
	change func(s *shelf)
}

func (s *shelf) read(_ context.Context, number int) ([]int, bool, error) {
	from := min(3*(number-1), len(s.entries))
	to := min(from+3, len(s.entries))
	page := slices.Clone(s.entries[from:to])
	last := to == len(s.entries)
	s.reads++
	s.change(s)
	return page, last, nil
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
		s := &shelf{entries: sequence(10 + chance.IntN(20)), change: func(s *shelf) {
			if chance.IntN(12) > 0 || len(s.entries) == 0 {
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
		got, err := api.Complete(t.Context(), s.read, func(n int) int { return n })
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

func TestAListIsReadAsOftenAsItChanges(t *testing.T) {
	still := &shelf{entries: sequence(9), change: func(*shelf) {}}
	got, err := api.Complete(t.Context(), still.read, func(n int) int { return n })
	if err != nil || !slices.Equal(got, still.entries) || still.reads != 6 {
		t.Errorf("Complete = %v, %v after %d reads, want 6: one for the first page, two for the border behind it, three for the next", got, err, still.reads)
	}
	never := &shelf{entries: sequence(9), change: func(s *shelf) { s.entries = append(s.entries[1:], s.reads+1000) }}
	_, err = api.Complete(t.Context(), never.read, func(n int) int { return n })
	cloudtest.Want(t, err, fault.Unavailable, "the list changed")
	endless := &shelf{entries: sequence(1 << 20), change: func(*shelf) {}}
	_, err = api.Complete(t.Context(), endless.read, func(n int) int { return n })
	cloudtest.Want(t, err, fault.Unavailable, "more than")
}

func TestCut(t *testing.T) {
	all := func() []string { return []string{"d", "b", "a", "c"} }
	for name, tc := range map[string]struct {
		page cloud.Page
		want []string
		next string
	}{
		"all":                      {cloud.Page{}, []string{"a", "b", "c", "d"}, ""},
		"the first page":           {cloud.Page{Most: 2}, []string{"a", "b"}, "b"},
		"the last page":            {cloud.Page{Most: 2, Token: "b"}, []string{"c", "d"}, ""},
		"a token that has gone":    {cloud.Page{Most: 2, Token: "aa"}, []string{"b", "c"}, "c"},
		"a token behind the end":   {cloud.Page{Token: "z"}, nil, ""},
		"a page as long as it all": {cloud.Page{Most: 4}, []string{"a", "b", "c", "d"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			part, token := api.Cut(all(), tc.page, strings.Compare, func(s string) string { return s })
			next, err := api.PageOf(cloud.Page{Token: token})
			if !slices.Equal(part, tc.want) || next.Token != tc.next || err != nil {
				t.Errorf("Cut = %q, %q (%v), want %q, %q", part, next.Token, err, tc.want, tc.next)
			}
		})
	}
}

// Where ids are numbers, a number that no page returned is not taken for a token.
func TestATokenThatNoPageReturnedIsStale(t *testing.T) {
	_, token := api.Cut([]string{"1", "2"}, cloud.Page{Most: 1}, api.ByNumber, func(s string) string { return s })
	for _, other := range []string{"1", "1.", ".", "2" + token[1:], token + "x", token + "." + token} {
		_, err := api.PageOf(cloud.Page{Token: other})
		cloudtest.Want(t, err, fault.StalePage)
	}
}

func TestIDsThatAreNumbers(t *testing.T) {
	for id, want := range map[string]int{"1": 1, "9007199254740993": 9007199254740993, "": 0, "0": 0, "-1": 0, "+1": 0, "01": 0, "1x": 0, "1e3": 0, "99999999999999999999": 0} {
		if n, ok := api.Number(id); ok != (want > 0) || ok && n != want {
			t.Errorf("Number(%q) = %d, %v", id, n, ok)
		}
	}
	if got := slices.SortedFunc(slices.Values([]string{"10", "9", "100", "11"}), api.ByNumber); !slices.Equal(got, []string{"9", "10", "11", "100"}) {
		t.Errorf("by number: %q", got)
	}
}
