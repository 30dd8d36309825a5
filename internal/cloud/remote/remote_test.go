package remote_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// A write on any protocol: it says when it leaves, and goes on with the context that it gets.
func TestAWriteOutlivesItsCaller(t *testing.T) {
	tests := map[string]struct {
		before, after time.Duration // until it leaves, and from there to its answer
		leaveBy       time.Duration
		kind          fault.Kind
		within        time.Duration
		sent          bool
	}{
		"answered in time":                     {before: time.Second, after: time.Second, within: 2 * time.Second, sent: true},
		"its caller goes before it leaves":     {before: 10 * time.Second, kind: fault.Unavailable, within: 10 * time.Second},
		"its caller goes while it is answered": {after: 10 * time.Second, kind: fault.Uncertain, within: 5 * time.Second, sent: true},
		"its reason is too old by then":        {before: 3 * time.Second, leaveBy: 2 * time.Second, kind: fault.Unavailable, within: 3 * time.Second},
		"its reason holds":                     {before: time.Second, leaveBy: 2 * time.Second, within: time.Second, sent: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := remote.NewWork(t.Context())
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				write := ctx
				if tc.leaveBy > 0 {
					write = remote.LeaveBy(ctx, time.Now().Add(tc.leaveBy))
				}
				sent, landed := false, false
				began := time.Now()
				err := w.Write(write, "a", func(ctx context.Context) error {
					time.Sleep(tc.before)
					ctx, _, err := remote.Leave(ctx)
					if err != nil {
						return err
					}
					sent = true
					select {
					case <-time.After(tc.after):
						landed = true
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				cloudtest.Want(t, err, tc.kind)
				if took := time.Since(began); took != tc.within {
					t.Errorf("it took %s, want %s", took, tc.within)
				}
				if tc.leaveBy > 0 && errors.Is(err, remote.ErrLate) != (err != nil) {
					t.Errorf("%v does not tell that it is late", err)
				}
				cloudtest.Want(t, w.Settled(t.Context(), "a"), fault.None)
				if sent != tc.sent || landed != tc.sent {
					t.Errorf("sent: %v, landed: %v, want %v", sent, landed, tc.sent)
				}
				w.End()
				cloudtest.Want(t, w.Wait(t.Context()), fault.None)
			})
		})
	}
}

// C6: the panic of a library that gets nonsense for an answer ends neither the program nor the object's turn.
func TestAPanicIsAnAnswerThatNobodyUnderstood(t *testing.T) {
	w := remote.NewWork(t.Context())
	var nothing *struct{ id string }
	err := w.Write(t.Context(), "volume", func(context.Context) error { return errors.New(nothing.id) })
	if fault.Of(err) != fault.Uncertain {
		t.Errorf("Write = %v, want %v", err, fault.Uncertain)
	}
	if err := w.Write(t.Context(), "volume", func(context.Context) error { return nil }); err != nil {
		t.Errorf("the next Write = %v", err)
	}
}

// A1: a later write of the same object waits until the earlier one was answered; another object's does not.
func TestWritesOfOneObjectDoNotOvertakeOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := remote.NewWork(t.Context())
		landed := make(chan string, 3)
		write := func(object, name string, takes time.Duration) {
			cloudtest.Want(t, w.Write(t.Context(), object, func(ctx context.Context) error {
				_, _, err := remote.Leave(ctx)
				time.Sleep(takes)
				landed <- name
				return err
			}), fault.None)
		}
		go write("a", "first", 3*time.Second)
		time.Sleep(time.Second)
		go write("a", "second", 0)
		write("b", "other", 0)
		order := []string{<-landed, <-landed, <-landed}
		if want := []string{"other", "first", "second"}; !slices.Equal(order, want) {
			t.Errorf("they landed in the order %q, want %q", order, want)
		}
		w.End()
	})
}

func TestACutListGoesOnWhereItWas(t *testing.T) {
	all := func() []string { return []string{"3", "1", "2", "5"} }
	tests := map[string]struct {
		page cloud.Page
		want []string
		next string
	}{
		"all of it":                          {cloud.Page{}, []string{"1", "2", "3", "5"}, ""},
		"a first page":                       {cloud.Page{Most: 2}, []string{"1", "2"}, "2"},
		"the page after it":                  {cloud.Page{Token: "2", Most: 2}, []string{"3", "5"}, ""},
		"after one that has gone meanwhile":  {cloud.Page{Token: "4", Most: 2}, []string{"5"}, ""},
		"after the last":                     {cloud.Page{Token: "5"}, nil, ""},
		"a page that is as long as the rest": {cloud.Page{Token: "1", Most: 3}, []string{"2", "3", "5"}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			part, next := remote.Cut(all(), tc.page, strings.Compare, func(s string) string { return s })
			if !slices.Equal(part, tc.want) || next != tc.next {
				t.Errorf("Cut = %q, %q, want %q, %q", part, next, tc.want, tc.next)
			}
		})
	}
}

// P5: a list whose pages move while they are read is read again, and never half believed.
func TestAListOfSeveralPagesIsCompleteOrAnError(t *testing.T) {
	for name, tc := range map[string]struct {
		changes int // how often it changes, once after each read
		kind    fault.Kind
	}{
		"it stands still": {0, fault.None}, "it changes twice": {2, fault.None}, "it never stands still": {1000, fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			entries := []int{1, 2, 3, 4, 5}
			reads := 0
			read := remote.Pages[int](func(_ context.Context, number int) ([]int, bool, error) {
				from := min(2*(number-1), len(entries))
				page := slices.Clone(entries[from:min(from+2, len(entries))])
				last := from+2 >= len(entries)
				if reads++; reads <= tc.changes { // the first goes away, a new one comes
					entries = append(slices.Clone(entries[1:]), entries[len(entries)-1]+1)
				}
				return page, last, nil
			})
			got, err := remote.Complete(t.Context(), read, func(n int) int { return n })
			cloudtest.Want(t, err, tc.kind)
			if err == nil && !slices.Equal(got, entries) {
				t.Errorf("Complete = %v, want %v", got, entries)
			}
		})
	}
}

func TestARefusalWithoutAReasonIsNotRepeatedForLong(t *testing.T) {
	var p remote.Puzzles
	refusal := fmt.Errorf("the moon is full: %w", fault.Busy)
	n := 1
	for fault.Of(p.Count(refusal)) == fault.Busy {
		n++
	}
	if n != 5 {
		t.Errorf("it is sent %d times, want 5", n)
	}
	cloudtest.Want(t, p.Count(refusal), fault.Unavailable, "the moon is full")
	var other remote.Puzzles
	cloudtest.Want(t, other.Count(fmt.Errorf("x: %w", fault.NotFound)), fault.NotFound)
}
