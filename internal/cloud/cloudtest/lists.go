package cloudtest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// lister is one of the two paged lists.
type lister struct {
	page   func(cloud.Page) (ids []string, next string, err error)
	create func(name string) string
	remove func(id string) error
}

func (h Harness) testList(t *testing.T) {
	h.testPages(t, func(e *env) *lister {
		return &lister{
			page: func(p cloud.Page) (ids []string, next string, err error) {
				list, err := e.c.ListVolumes(e.Context(), p)
				for _, vol := range list.Volumes {
					ids = append(ids, string(vol.ID))
				}
				return ids, list.Next, err
			},
			create: func(name string) string { return string(e.volume(name).ID) },
			remove: func(id string) error { return e.c.DeleteVolume(e.Context(), cloud.VolumeID(id)) },
		}
	})
	h.check(t, "the list shows what GetVolume shows", func(e *env) {
		vol := e.volume("shown")
		e.use(vol.ID)
		got, want := e.ids()[vol.ID], e.get(vol.ID)
		if got.Size != want.Size || got.Created.IsZero() || !got.Created.Equal(want.Created) || got.Zone != want.Zone || got.Source != want.Source || !slices.Equal(got.AttachedTo, want.AttachedTo) {
			e.Errorf("ListVolumes shows %+v, GetVolume %+v", got, want)
		}
	})
}

func (h Harness) testSnapshotPages(t *testing.T) {
	h.testPages(t, func(e *env) *lister {
		if !e.caps.Snapshots {
			_, err := e.c.ListSnapshots(e.Context(), "", cloud.Page{})
			e.want(err, "ListSnapshots", fault.Unsupported)
			return nil
		}
		of := e.volume("origin").ID
		return &lister{
			page: func(p cloud.Page) (ids []string, next string, err error) {
				list, err := e.c.ListSnapshots(e.Context(), "", p)
				for _, snap := range list.Snapshots {
					ids = append(ids, string(snap.ID))
				}
				return ids, list.Next, err
			},
			create: func(name string) string { return string(e.snapshot(name, of).ID) },
			remove: func(id string) error { return e.c.DeleteSnapshot(e.Context(), cloud.SnapshotID(id)) },
		}
	})
}

// testPages checks the rules that both lists have. A nil lister means that there is no such list.
func (h Harness) testPages(t *testing.T, of func(e *env) *lister) {
	pages := h.pages(t, of)
	pages("without entries there is one empty page", func(e *env, l *lister) {
		if got := l.walk(e, 2); len(got) != 1 || len(got[0]) != 0 {
			e.Errorf("pages = %q, want one empty page", got)
		}
	})
	pages("what fits into one page is one page", func(e *env, l *lister) {
		made := l.make(e, 2)
		for _, most := range []int{0, 3, 10} {
			got := l.walk(e, most)
			e.exactly(slices.Concat(got...), made)
			if len(got) != 1 {
				e.Errorf("at most %d on a page: pages = %q, want one", most, got)
			}
		}
	})
	pages("no page is longer than wanted, and all together are complete", func(e *env, l *lister) {
		made := l.make(e, 5)
		for _, most := range []int{1, 2, 4} {
			got := l.walk(e, most)
			e.exactly(slices.Concat(got...), made)
			for _, page := range got {
				if len(page) > most {
					e.Errorf("at most %d on a page: %q", most, page)
				}
			}
		}
	})
	h.testMovingPages(t, of)
}

// pages returns a function that runs a subtest with a lister, if there is one.
func (h Harness) pages(t *testing.T, of func(e *env) *lister) func(sentence string, test func(e *env, l *lister)) {
	return func(sentence string, test func(e *env, l *lister)) {
		t.Helper()
		h.check(t, sentence, func(e *env) {
			if l := of(e); l != nil {
				test(e, l)
			}
		})
	}
}

// testMovingPages tests the pages after the first.
func (h Harness) testMovingPages(t *testing.T, of func(e *env) *lister) {
	pages := h.pages(t, of)
	pages("the order is stable while entries come and go", func(e *env, l *lister) {
		made := l.make(e, 6)
		first, next, err := l.page(cloud.Page{Most: 2})
		if err != nil || len(first) != 2 || next == "" {
			e.Fatalf("first page = %q, %q, %v, want two entries and a token", first, next, err)
		}
		for _, id := range first { // this deletes the entry of the page token too
			e.ok(l.remove(id), "remove")
		}
		newcomer := l.create("newcomer")
		rest := slices.Concat(l.walkFrom(e, next, 2)...)
		rest = slices.DeleteFunc(rest, func(id string) bool { return id == newcomer })
		e.exactly(append(slices.Clone(first), rest...), made)
	})
	pages("fault.StalePage for a token that no earlier page returned", func(e *env, l *lister) {
		l.make(e, 3)
		_, next, err := l.page(cloud.Page{Most: 1})
		if err != nil || next == "" {
			e.Fatalf("first page of three = %q, %v, want a token", next, err)
		}
		for _, token := range []string{
			"no-such-token", "999999999", "-1", next + "x", next + " ", " ", "../" + next, "page=2&x", "страница",
		} {
			_, _, err := l.page(cloud.Page{Token: token})
			e.want(err, fmt.Sprintf("list from the token %q", token), fault.StalePage)
		}
	})
}

func (l *lister) make(e *env, n int) (ids []string) {
	e.Helper()
	for i := range n {
		ids = append(ids, l.create(fmt.Sprintf("entry-%d", i)))
	}
	return ids
}

func (l *lister) walk(e *env, most int) [][]string {
	e.Helper()
	return l.walkFrom(e, "", most)
}

func (l *lister) walkFrom(e *env, token string, most int) (pages [][]string) {
	e.Helper()
	for len(pages) < 20 {
		ids, next, err := l.page(cloud.Page{Token: token, Most: most})
		if err != nil {
			e.Fatalf("page from token %q = %v", token, err)
		}
		pages = append(pages, ids)
		if token = next; token == "" {
			return pages
		}
	}
	e.Fatalf("the list does not end: %q", pages)
	return nil
}

// exactly fails the test unless both have the same ids, each once.
func (e *env) exactly(got, want []string) {
	e.Helper()
	a, b := slices.Clone(got), slices.Clone(want)
	slices.Sort(a)
	slices.Sort(b)
	if !slices.Equal(a, b) {
		e.Errorf("the list has %q, want %q", a, b)
	}
}

// Failure P5: a list has all volumes that existed the whole time, even if the first and the last one are deleted after each of its
// pages, or it is an error.
func (w *world) changingPages() {
	var ids []cloud.VolumeID
	for n := range w.Page + w.Page/2 {
		id, err := w.account.Add(fmt.Sprintf("entry-%d", n))
		Must(w.T, err)
		ids = append(ids, id)
	}
	var lists atomic.Bool
	var mu sync.Mutex // guards both
	requests := 0
	reader := w.account.Open(w.T, func(send func() error) error {
		err := send()
		if !lists.Load() {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if requests++; requests <= 4 {
			last := len(ids) - 1
			for _, id := range []cloud.VolumeID{ids[0], ids[last]} {
				if err := w.c.DeleteVolume(w.Context(), id); err != nil {
					w.Error(err)
				}
			}
			ids = ids[1:last]
			pass(short) // some clouds still list deleted volumes for a while
		}
		return err
	})
	lists.Store(true)
	list, err := reader.ListVolumes(w.Context(), cloud.Page{})
	lists.Store(false)
	Must(w.T, err)
	if requests < 2 {
		w.Errorf("the list has %d volumes after %d requests: Crashes.Page has to be the largest page of the account", len(list.Volumes), requests)
	}
	for _, id := range ids {
		if !slices.ContainsFunc(list.Volumes, func(vol cloud.Volume) bool { return vol.ID == id }) {
			w.Errorf("the list of %d lacks %s", len(list.Volumes), id)
		}
	}
}
