package pool

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/lvm"
)

// pair returns a set of two pools, as on two disks: it leaves out the check that they are.
func pair(t *testing.T, dir string) (*Set, *Pool, *Pool) {
	t.Helper()
	s := &Set{members: map[string]*member{}, opening: make(chan struct{}, 1)}
	var pools []*Pool
	for _, name := range []string{"", "fast"} {
		cfg := Config{Name: name, Dir: filepath.Join(dir, "pool"+name), Node: "n1", IDFile: filepath.Join(dir, "state", "pool-id"+name)}
		p, err := Open(t.Context(), cfg)
		must(t, err)
		p.disk.statfs, p.others = diskOf(100), s.Opened
		m := &member{cfg: cfg}
		storage := Storage(p)
		m.pool.Store(&storage)
		s.members[p.label], pools = m, append(pools, p)
	}
	return s, pools[0], pools[1]
}

// hide takes the disk of a pool away, as if it was not mounted.
func hide(t *testing.T, p *Pool) (mount func()) {
	t.Helper()
	must(t, os.Rename(p.dir, p.dir+" disk"))
	must(t, os.Mkdir(p.dir, 0o700))
	return func() {
		t.Helper()
		must(t, os.Remove(p.dir))
		must(t, os.Rename(p.dir+" disk", p.dir))
	}
}

// Nodes have the same flags and different disks: where none is mounted, a pool with a name is not made.
func TestPoolWithoutADiskIsNotOnThisNode(t *testing.T) {
	home := t.TempDir()
	first := Config{Dir: filepath.Join(home, "a"), Node: "n1"}
	for name, dir := range map[string]string{
		"sibling":           filepath.Join(home, "b"),
		"below":             filepath.Join(first.Dir, "b"),
		"deep in a sibling": filepath.Join(home, "b", "c", "d"),
	} {
		t.Run(name, func(t *testing.T) {
			second := Config{Name: "fast", Dir: dir, Node: "n1", IDFile: filepath.Join(home, "state", "pool-id-fast")}
			s, err := OpenSet(t.Context(), first, second)
			must(t, err)
			_, err = s.Named(t.Context(), "fast")
			wantKind(t, "the second pool", err, fault.NotFound)
			if err == nil || !strings.Contains(err.Error(), "no filesystem is mounted at "+dir) {
				t.Errorf("the second pool = %v, want its folder named", err)
			}
			for _, made := range []string{second.Dir, second.IDFile} {
				if _, err := os.Lstat(made); err == nil {
					t.Errorf("%s was made", made)
				}
			}
			if _, err := s.Named(t.Context(), DefaultName); err != nil {
				t.Errorf("the first pool = %v", err)
			}
			wantKind(t, "Check", s.Check(t.Context()), fault.None)
			_, err = s.Of(t.Context(), Handle{Node: "n1", Pool: "fast", ID: NewID()})
			wantReason(t, "Of the second pool", err, fault.PoolUnusable)
			_, err = OpenSet(t.Context(), second, Config{Name: "other", Dir: home, Node: "n1"})
			if err == nil || !strings.Contains(err.Error(), "no pool fast") || !strings.Contains(err.Error(), "no pool other") {
				t.Errorf("OpenSet of such pools alone = %v", err)
			}
		})
	}
}

// The reservations of a pool do not count for another one, so each needs a filesystem of its own.
func TestPoolsOnOneFilesystemAreRefused(t *testing.T) {
	home := t.TempDir()
	first, err := Open(t.Context(), Config{Dir: filepath.Join(home, "a"), Node: "n1"})
	must(t, err)
	for name, dir := range map[string]string{
		"sibling":           filepath.Join(home, "b"),
		"below":             filepath.Join(first.dir, "b"),
		"deep in a sibling": filepath.Join(home, "b", "c", "d"),
		"the same":          first.dir,
	} {
		t.Run(name, func(t *testing.T) {
			idFile := filepath.Join(home, "state", "pool-id-fast")
			_, err := openMember(t.Context(), Config{Name: "fast", Dir: dir, Node: "n1", IDFile: idFile}, func() []Storage { return []Storage{first} })
			wantKind(t, "the second pool", err, fault.Precondition)
			if err == nil || !strings.Contains(err.Error(), "is its disk mounted?") || !strings.Contains(err.Error(), first.dir) {
				t.Errorf("the second pool = %v, want the folder of the first named", err)
			}
			if _, err := os.Lstat(idFile); err == nil {
				t.Error("its id was written")
			}
			if _, err := os.Lstat(dir); err == nil && dir != first.dir {
				t.Error("its folder was made")
			}
		})
	}
}

func TestSetWithoutAUsablePoolIsRefused(t *testing.T) {
	home := t.TempDir()
	full := filepath.Join(home, "full")
	must(t, os.MkdirAll(filepath.Join(full, "other"), 0o700))
	_, err := OpenSet(t.Context(), Config{Dir: full, Node: "n1"})
	wantKind(t, "OpenSet", err, fault.Precondition)
	_, err = OpenSet(t.Context(), Config{Dir: full, Node: "n1"}, Config{Name: "fast", Dir: filepath.Join(full, "other"), Node: "n2", MustExist: true})
	if err == nil || !strings.Contains(err.Error(), "pool default") || !strings.Contains(err.Error(), "pool fast") {
		t.Errorf("OpenSet = %v, want what is wrong with each", err)
	}
}

func TestPoolOfAnotherName(t *testing.T) {
	dir := t.TempDir()
	s, _, fast := pair(t, dir)
	_, err := s.Named(t.Context(), "slow")
	wantKind(t, "Named", err, fault.NotFound)
	if err == nil || !strings.Contains(err.Error(), "there is default, fast") {
		t.Errorf("Named = %v, want the names that there are", err)
	}
	// The ids of its volumes have the name that a pool was made with.
	_, err = Open(t.Context(), Config{Name: "slow", Dir: fast.dir, Node: "n1"})
	wantReason(t, "Open under another name", err, fault.PoolUnusable)
	_, err = Open(t.Context(), Config{Dir: fast.dir, Node: "n1"})
	wantReason(t, "Open without its name", err, fault.PoolUnusable)
	if p, err := Open(t.Context(), Config{Dir: fast.dir, MustExist: true}); err != nil || p.Name() != "fast" {
		t.Errorf("Open of whatever is there = %v, %v, want fast", p, err)
	}
	for name, good := range map[string]bool{
		"fast": true, "a": true, "0-9": true, strings.Repeat("a", 63): true,
		"": false, "-a": false, "a-": false, "A": false, "a.b": false, "../a": false, "a/b": false, "a\n": false, strings.Repeat("a", 64): false,
	} {
		if err := CheckName(name); (err == nil) != good {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
}

func TestTheIDNamesThePool(t *testing.T) {
	s, first, fast := pair(t, t.TempDir())
	for _, p := range []*Pool{first, fast} {
		vol := mustCreate(t, p, "in "+p.label, small)
		snap, err := plantSnapshot(p, vol, "of "+p.label)
		must(t, err)
		h, err := ParseHandle(p.Handle(vol.ID).String())
		must(t, err)
		if got, err := s.Of(t.Context(), h); got != p || err != nil {
			t.Errorf("Of = %v, %v, want %v", got, err, p)
		}
		if got, e, err := s.FindByName(t.Context(), "in "+p.label); got != p || e.ID != vol.ID || err != nil {
			t.Errorf("FindByName = %v, %+v, %v", got, e, err)
		}
		if got, e, err := s.FindSnapshot(t.Context(), "of "+p.label); got != p || e.ID != snap || err != nil {
			t.Errorf("FindSnapshot = %v, %+v, %v", got, e, err)
		}
	}
	_, _, err := s.FindByName(t.Context(), "none")
	wantKind(t, "FindByName of none", err, fault.NotFound)
	// What is in a pool that is not configured exists.
	_, err = s.Of(t.Context(), Handle{Node: "n1", Pool: "slow", ID: NewID()})
	wantReason(t, "Of a pool that is not configured", err, fault.PoolUnusable)
	if errors.Is(err, fault.NotFound) {
		t.Errorf("Of = %v, which a delete takes for gone", err)
	}
	if err == nil || !strings.Contains(err.Error(), "start with that pool in --local-pool") {
		t.Errorf("Of = %v, want the remedy", err)
	}
}

// A name is unique in its pool. A search that finds two says so.
func TestNamesAreOfAPool(t *testing.T) {
	s, first, fast := pair(t, t.TempDir())
	mustCreate(t, first, "a", small)
	mustCreate(t, fast, "a", small)
	_, err := fast.Create(t.Context(), NewVolume{Name: "a", Size: small})
	wantKind(t, "Create of a name that the pool has", err, fault.Conflict)
	_, _, err = s.FindByName(t.Context(), "a")
	wantKind(t, "FindByName of a name in two pools", err, fault.Conflict)
	if err == nil || !strings.Contains(err.Error(), "default and fast") {
		t.Errorf("FindByName = %v, want both pools", err)
	}
}

// While a pool is missing, what may be in it is not reported as gone, and the other pool serves.
func TestMissingPoolStopsNoOther(t *testing.T) {
	dir := t.TempDir()
	s, first, fast := pair(t, dir)
	here, lost := mustCreate(t, first, "here", small), mustCreate(t, fast, "lost", small)
	mount := hide(t, fast)

	check := func(what string, s *Set) {
		t.Helper()
		if got, err := s.Of(t.Context(), first.Handle(here.ID)); err != nil || got.Dir() != first.dir {
			t.Errorf("%s: Of the other pool = %v, %v", what, got, err)
		}
		if _, e, err := s.FindByName(t.Context(), "here"); err != nil || e.ID != here.ID {
			t.Errorf("%s: FindByName of the other pool = %+v, %v", what, e, err)
		}
		p, err := s.Of(t.Context(), fast.Handle(lost.ID))
		if err == nil {
			_, err = p.Get(t.Context(), lost.ID)
		}
		wantKind(t, what+": Get", err, fault.Precondition)
		_, _, err = s.FindByName(t.Context(), "lost")
		wantKind(t, what+": FindByName", err, fault.Precondition)
		wantKind(t, what+": Check", s.Check(t.Context()), fault.Precondition)
		if usable, _ := s.Pools(t.Context()); len(usable) != 1 || usable[0].Dir() != first.dir {
			t.Errorf("%s: usable are %v", what, usable)
		}
	}
	check("lost while in use", s)
	mustCreate(t, first, "another", small)

	again := &Set{opening: make(chan struct{}, 1), members: map[string]*member{DefaultName: s.members[DefaultName], "fast": {cfg: s.members["fast"].cfg}}}
	check("missing at the start", again)
	if left, err := os.ReadDir(fast.dir); err != nil || len(left) > 0 {
		t.Errorf("the bare folder holds %v, %v", left, err)
	}

	mount()
	wantKind(t, "Check with the disk back", s.Check(t.Context()), fault.None)
	if e, err := fast.Get(t.Context(), lost.ID); err != nil || e.Kind != Whole {
		t.Errorf("Get with the disk back = %+v, %v", e, err)
	}
}

// A volume group whose disk hangs stops no call for another pool.
func TestPoolThatHangsStopsNoOther(t *testing.T) {
	host := lvm.New(gib)
	hang := make(chan struct{})
	var hangs atomic.Bool
	host.Hook = func([]string) {
		if hangs.Load() {
			<-hang
		}
	}
	cfg := groupConfig(t, host)
	cfg.Name = "group"
	s, err := OpenSet(t.Context(), cfg, Config{Dir: filepath.Join(t.TempDir(), "pool"), Node: "n1"})
	must(t, err)
	hangs.Store(true)
	p, err := s.Of(t.Context(), Handle{Node: "n1", Pool: DefaultName, ID: NewID()})
	must(t, err)
	files := p.(*Pool)
	files.disk.statfs = diskOf(100)
	must(t, files.Delete(t.Context(), mustCreate(t, files, "a", small).ID))
	close(hang)
	must(t, s.Close(t.Context()))
}

// A folder that cannot be read proves nothing about the volumes in it.
func TestUnreadablePoolIsNotTakenForEmpty(t *testing.T) {
	s, _, fast := pair(t, t.TempDir())
	lost := mustCreate(t, fast, "lost", small)
	folder := fast.path(string(volumes))
	must(t, os.Rename(folder, folder+" before"))
	must(t, os.WriteFile(folder, nil, 0o600))
	if e, err := fast.Get(t.Context(), lost.ID); err != nil || e.Kind != Damaged {
		t.Errorf("Get = %+v, %v, want it damaged", e, err)
	}
	wantReason(t, "Delete", fast.Delete(t.Context(), lost.ID), fault.VolumeDamaged)
	if _, _, err := s.FindByName(t.Context(), "lost"); err == nil || fault.Of(err) == fault.NotFound {
		t.Errorf("FindByName = %v, want an error other than NotFound", err)
	}
}
