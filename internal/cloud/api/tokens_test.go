package api_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// tokensOf is a list in pages of 10 entries. A token is how many entries are before its page, or with behind the last of them. change is
// called after each read.
func tokensOf(entries *[]int, behind bool, change func(reads int)) (api.Tokens[int], *int) {
	reads := 0
	return api.Tokens[int]{ID: strconv.Itoa, Read: func(_ context.Context, token string) ([]int, string, error) {
		from, _ := strconv.Atoi(token)
		if behind && token != "" {
			last := from
			if from = slices.IndexFunc(*entries, func(entry int) bool { return entry > last }); from < 0 {
				from = len(*entries)
			}
		}
		from = min(from, len(*entries))
		to := min(from+10, len(*entries))
		page, next := slices.Clone((*entries)[from:to]), ""
		switch {
		case to == len(*entries):
		case behind:
			next = strconv.Itoa(page[len(page)-1])
		default:
			next = strconv.Itoa(to)
		}
		reads++
		change(reads)
		return page, next, nil
	}}, &reads
}

// P5: a list is complete, whatever its tokens stand for, while entries come and go.
func TestAListWithTokensIsComplete(t *testing.T) {
	for _, behind := range []bool{true, false} {
		entries := sequence(45)
		l, reads := tokensOf(&entries, behind, func(reads int) {
			switch reads {
			case 1: // 10 moves to the page that was read
				entries = slices.Delete(entries, 3, 4)
			case 3: // the last entry of that page moves to the next one, if the page begins behind a number
				entries = slices.Insert(entries, 0, -1)
			}
		})
		got, err := l.Complete(t.Context())
		must(t, err)
		whole(t, fmt.Sprint("behind an entry ", behind), got, sequence(45), entries)
		if *reads < 10 {
			t.Errorf("behind an entry %t: %d reads, want at least two passes", behind, *reads)
		}
	}
}

// P5: a list that is never read alike twice is an error, and one page needs no second reading.
func TestAListWithTokensThatChangesAlways(t *testing.T) {
	entries := sequence(45)
	always, _ := tokensOf(&entries, true, func(int) { entries = entries[1:] })
	if got, err := always.Complete(t.Context()); fault.Of(err) != fault.Unavailable {
		t.Errorf("Complete = %v, %v, want Unavailable", got, err)
	}
	entries = sequence(10)
	l, reads := tokensOf(&entries, true, func(int) {})
	if got, err := l.Complete(t.Context()); err != nil || !slices.Equal(got, sequence(10)) || *reads != 1 {
		t.Errorf("Complete = %v, %v with %d reads, want 10 entries with one", got, err, *reads)
	}
}

// A list whose end never comes is an error.
func TestAListWithTokensWithoutAnEnd(t *testing.T) {
	for name, page := range map[string][]int{"empty pages": nil, "full pages": make([]int, 1000)} {
		reads := 0
		l := api.Tokens[int]{ID: strconv.Itoa, Read: func(context.Context, string) ([]int, string, error) {
			reads++
			return page, "more", nil
		}}
		for call, read := range map[string]func(context.Context) ([]int, error){"All": l.All, "Complete": l.Complete} {
			reads = 0
			if _, err := read(t.Context()); fault.Of(err) != fault.Unavailable || reads*len(page) > 50_000 {
				t.Errorf("%s: %s fails with %v after %d reads, want Unavailable before 50,000 entries", name, call, err, reads)
			}
		}
	}
}

// Callers get every entry once, in parts, even if the last entry of a part is deleted meanwhile.
func TestAListWithTokensInParts(t *testing.T) {
	entries := []int{40, 12, 31, 22, 50, 63, 99, 84, 75, 17, 28, 39}
	l, _ := tokensOf(&entries, false, func(int) {})
	var got []int
	for page := (cloud.Page{Most: 5}); ; {
		part, next, err := l.Listing("entries").Part(t.Context(), page)
		must(t, err)
		if got = append(got, part...); next == "" {
			break
		}
		if page.Token == "" { // the last entry of the first part goes, that of the second stays
			last := part[len(part)-1]
			entries = slices.DeleteFunc(entries, func(entry int) bool { return entry == last })
		}
		page.Token = next
	}
	if want := []int{12, 17, 22, 28, 31, 39, 40, 50, 63, 75, 84, 99}; !slices.Equal(got, want) {
		t.Errorf("the parts are %v, want %v", got, want)
	}
}
