package lvm

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/lvm"
)

// L12: the process is killed at each change in turn, before and after its effect. The next process completes the call
// when it is repeated; nothing else has changed, and no device shows what its extents had before.
func TestGroupPoolAfterAKill(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, p *Pool, old pool.ID) error{
		"create": func(t *testing.T, p *Pool, _ pool.ID) error {
			if _, err := p.FindByName(t.Context(), "new"); !errors.Is(err, fault.NotFound) {
				return err
			}
			_, err := p.Create(t.Context(), pool.NewVolume{Name: "new", Size: 600 << 20})
			return err
		},
		"delete": func(t *testing.T, p *Pool, old pool.ID) error {
			err := p.Delete(t.Context(), old)
			if errors.Is(err, fault.NotFound) {
				return nil
			}
			return err
		},
		"grow": func(t *testing.T, p *Pool, old pool.ID) error {
			size, err := p.Grow(t.Context(), old, 600<<20)
			if err == nil && size != 600<<20 {
				t.Errorf("Grow = %d", size)
			}
			return err
		},
		"grow in use": func(t *testing.T, p *Pool, old pool.ID) error {
			err := p.Activate(t.Context(), old)
			if err == nil {
				_, err = p.Grow(t.Context(), old, 600<<20)
			}
			if err == nil { // another volume gets what is free, and the first one stays as it is
				_, err = p.Create(t.Context(), pool.NewVolume{Name: "new", Size: 600 << 20})
			}
			if err == nil || errors.Is(err, fault.Conflict) {
				err = p.Deactivate(t.Context(), old)
			}
			return err
		},
		"activate": func(t *testing.T, p *Pool, old pool.ID) error {
			return errors.Join(p.Activate(t.Context(), old), p.MarkWritten(t.Context(), old), p.Deactivate(t.Context(), old))
		},
	} {
		for _, effect := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/effect=%t", name, effect), func(t *testing.T) { testGroupAfterKills(t, name, call, effect) })
		}
	}
}

func testGroupAfterKills(t *testing.T, name string, call func(*testing.T, *Pool, pool.ID) error, effect bool) {
	for n := 1; ; n++ {
		host := lvm.New(2 * gib)
		cfg := host.Config(t)
		p := openPool(t, cfg)
		old, other := mustCreate(t, p, "old", 16<<20), mustCreate(t, p, "other", 16<<20)
		host.Write(host.Volume(p.FileName(other.ID)))
		host.Kill(n, effect)
		err := call(t, p, old.ID)
		if !host.Restart() {
			must(t, err)
			if n == 1 {
				t.Error("nothing was killed")
			}
			return
		}
		if err == nil {
			t.Errorf("kill %d: no error", n)
		}
		p = openPool(t, cfg)
		_, err = p.Usage(t.Context()) // whatever comes first
		must(t, err)
		for _, v := range host.Groups()[0].Volumes {
			if v.Active && !slices.Equal(v.Live, v.Extents) || v.Suspended || v.Loaded != nil {
				t.Errorf("after kill %d the device of %s is suspended: %t, has %d extents of %d", n, v.Name, v.Suspended, len(v.Live), len(v.Extents))
			}
		}
		must(t, call(t, p, old.ID))
		entries, err := p.List(t.Context())
		must(t, err)
		if got := len(host.Groups()[0].Volumes); got != len(entries) || got != map[string]int{"create": 3, "delete": 1, "grow": 2, "grow in use": 3, "activate": 2}[name] {
			t.Errorf("after kill %d there are %d logical volumes and the entries %+v", n, got, entries)
		}
		for _, e := range entries {
			v := host.Volume(e.File)
			if e.Kind != pool.Whole || v.Active || v.Suspended || host.Shows(v) != (e.ID == other.ID) {
				t.Errorf("after kill %d: %+v, %+v, shows what was there before: %t", n, e, v, host.Shows(v))
			}
		}
	}
}

// A create that nobody repeats stays, is named as that, and is removed by an operator only.
func TestGroupCreateThatWasNotRepeated(t *testing.T) {
	host := lvm.New(gib)
	cfg := host.Config(t)
	p := openPool(t, cfg)
	host.Kill(3, true)
	if _, err := p.Create(t.Context(), pool.NewVolume{Name: "a", Size: 600 << 20}); err == nil {
		t.Fatal("Create was not killed")
	}
	host.Restart()
	p = openPool(t, cfg)
	entries, err := p.List(t.Context())
	must(t, err)
	if len(entries) != 1 || entries[0].Kind != pool.Unfinished {
		t.Fatalf("List = %+v, want one that is unfinished", entries)
	}
	wantKind(t, "Delete", p.Delete(t.Context(), entries[0].ID), fault.Precondition)
	// Of another size it begins again.
	r, err := p.Create(t.Context(), pool.NewVolume{Name: "a", Size: 32 << 20})
	if err != nil || r.ID == entries[0].ID || len(host.Groups()[0].Volumes) != 1 {
		t.Errorf("Create of another size = %+v, %v", r, err)
	}
}
