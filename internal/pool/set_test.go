package pool

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/lvm"
)

// pair returns a set of two pools, as on two disks: it leaves out the check that they are.
func pair(t *testing.T, dir string) (*Set, *Pool, *Pool) {
	t.Helper()
	s := &Set{opening: make(chan struct{}, 1)}
	var pools []*Pool
	for _, name := range []string{"", "fast"} {
		cfg := Config{Name: name, Dir: filepath.Join(dir, "pool"+name), Node: "n1", IDFile: filepath.Join(dir, "state", "pool-id"+name)}
		p, err := Open(t.Context(), cfg)
		must(t, err)
		p.disk.statfs, p.others = diskOf(100), s.opened
		m := &member{cfg: cfg}
		storage := Storage(p)
		m.pool.Store(&storage)
		s.members, pools = append(s.members, m), append(pools, p)
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
			if _, err := s.Named(t.Context(), ""); err != nil {
				t.Errorf("the first pool = %v", err)
			}
			wantKind(t, "Check", s.Check(t.Context()), fault.None)
			_, err = s.WithVolume(t.Context(), NewID())
			wantKind(t, "WithVolume of none", err, fault.NotFound)
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
	if err == nil || !strings.Contains(err.Error(), "pool (unnamed)") || !strings.Contains(err.Error(), "pool fast") {
		t.Errorf("OpenSet = %v, want what is wrong with each", err)
	}
}

func TestPoolOfAnotherName(t *testing.T) {
	s, _, _ := pair(t, t.TempDir())
	_, err := s.Named(t.Context(), "slow")
	wantKind(t, "Named", err, fault.NotFound)
	if err == nil || !strings.Contains(err.Error(), "(unnamed), fast") {
		t.Errorf("Named = %v, want the names that there are", err)
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

func TestObjectsAreFoundInEachPool(t *testing.T) {
	s, first, fast := pair(t, t.TempDir())
	for _, p := range []*Pool{first, fast} {
		vol := mustCreate(t, p, "in "+p.dir, small)
		snap, err := plantSnapshot(p, vol, "of "+p.dir)
		must(t, err)
		if got, err := s.WithVolume(t.Context(), vol.ID); got != p || err != nil {
			t.Errorf("WithVolume = %v, %v, want %v", got, err, p)
		}
		if got, err := s.WithSnapshot(t.Context(), snap); got != p || err != nil {
			t.Errorf("WithSnapshot = %v, %v, want %v", got, err, p)
		}
		_, err = s.WithSnapshot(t.Context(), vol.ID)
		wantKind(t, "WithSnapshot of a volume", err, fault.NotFound)
		if got, e, err := s.FindByName(t.Context(), "in "+p.dir); got != p || e.ID != vol.ID || err != nil {
			t.Errorf("FindByName = %v, %+v, %v", got, e, err)
		}
		if got, e, err := s.FindSnapshot(t.Context(), "of "+p.dir); got != p || e.ID != snap || err != nil {
			t.Errorf("FindSnapshot = %v, %+v, %v", got, e, err)
		}
		must(t, os.Remove(p.file(volumeRef(vol.ID), recordExt)))
		if got, err := s.WithVolume(t.Context(), vol.ID); got != p || err != nil {
			t.Errorf("WithVolume without its record = %v, %v, want %v", got, err, p)
		}
	}
	_, err := s.WithVolume(t.Context(), NewID())
	wantKind(t, "WithVolume of none", err, fault.NotFound)
	_, _, err = s.FindByName(t.Context(), "none")
	wantKind(t, "FindByName of none", err, fault.NotFound)
}

// A name is one volume and one snapshot of the node, not of the pool.
func TestNamesAreOneForAllPools(t *testing.T) {
	s, first, fast := pair(t, t.TempDir())
	there := mustCreate(t, first, "a", small)
	_, err := fast.Create(t.Context(), NewVolume{Name: "a", Size: small})
	wantKind(t, "a volume under a name of another pool", err, fault.Conflict)
	if got := files(t, fast); len(got) != 0 {
		t.Errorf("the pool has %v, want nothing", got)
	}
	_, err = plantSnapshot(first, there, "s")
	must(t, err)
	mustCreate(t, fast, "s", small) // the name of a snapshot is no volume's

	// A create that was killed holds the name until the next call reads that pool.
	killed := Record{ID: NewID(), Name: "killed", Size: small, State: Creating, Created: now(), BlockSize: sharedBlock}
	must(t, first.writeRecord(killed.ref(), killed))
	_, err = fast.Create(t.Context(), NewVolume{Name: "killed", Size: small})
	wantKind(t, "a name of a killed create", err, fault.Conflict)
	_, _, err = s.FindByName(t.Context(), "killed")
	wantKind(t, "FindByName", err, fault.NotFound)
	mustCreate(t, fast, "killed", small)
}

func TestOneOfTwoCreatesAtOnceGetsTheName(t *testing.T) {
	dir := t.TempDir()
	_, first, fast := pair(t, dir)
	// As in another process, which shares no locks with the first.
	_, first2, fast2 := pair(t, dir)
	for i := range 30 {
		name := fmt.Sprint("v", i)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var made []*Pool
		for _, p := range []*Pool{first, fast2, fast, first2} {
			wg.Go(func() {
				_, err := p.Create(t.Context(), NewVolume{Name: name, Size: small})
				if err != nil {
					wantKind(t, "Create", err, fault.Conflict)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				made = append(made, p)
			})
		}
		wg.Wait()
		if len(made) > 1 {
			t.Fatalf("%d volumes have the name %s", len(made), name)
		}
		for _, p := range made {
			e, err := p.FindByName(t.Context(), name)
			must(t, err)
			must(t, p.Delete(t.Context(), e.ID))
		}
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
		if got, err := s.WithVolume(t.Context(), here.ID); err != nil || got.Dir() != first.dir {
			t.Errorf("%s: WithVolume of the other pool = %v, %v", what, got, err)
		}
		if _, e, err := s.FindByName(t.Context(), "here"); err != nil || e.ID != here.ID {
			t.Errorf("%s: FindByName of the other pool = %+v, %v", what, e, err)
		}
		_, err := s.WithVolume(t.Context(), lost.ID)
		wantKind(t, what+": WithVolume", err, fault.Precondition)
		_, _, err = s.FindByName(t.Context(), "lost")
		wantKind(t, what+": FindByName", err, fault.Precondition)
		wantKind(t, what+": Check", s.Check(t.Context()), fault.Precondition)
		if usable, _ := s.Pools(t.Context()); len(usable) != 1 || usable[0].Dir() != first.dir {
			t.Errorf("%s: usable are %v", what, usable)
		}
	}
	check("lost while in use", s)
	mustCreate(t, first, "another", small)

	again := &Set{opening: make(chan struct{}, 1)}
	again.members = append(again.members, s.members[0], &member{cfg: s.members[1].cfg})
	check("missing at the start", again)
	if left, err := os.ReadDir(fast.dir); err != nil || len(left) > 0 {
		t.Errorf("the bare folder holds %v, %v", left, err)
	}

	mount()
	wantKind(t, "Check with the disk back", s.Check(t.Context()), fault.None)
	if got, err := s.WithVolume(t.Context(), lost.ID); err != nil || got != fast {
		t.Errorf("WithVolume with the disk back = %v, %v", got, err)
	}
}

// A volume group whose disk hangs hides no volume of another pool, of LVM or of files, and ends the creates there after a time,
// without a trace.
func TestPoolThatHangsStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
		other := groupConfig(t, lvm.New(gib))
		other.Name = "other"
		s := &Set{opening: make(chan struct{}, 1), members: []*member{
			{cfg: cfg}, {cfg: other}, {cfg: Config{Dir: filepath.Join(t.TempDir(), "pool"), Node: "n1"}},
		}}
		usable, err := s.Pools(t.Context())
		must(t, err)
		files := usable[2].(*Pool)
		files.disk.statfs = diskOf(100)
		there := []Record{groupVolume(t, usable[1].(*GroupPool), "group", 16<<20), mustCreate(t, files, "a", small)}
		hangs.Store(true)

		for i, r := range there {
			if got, err := s.WithVolume(t.Context(), r.ID); err != nil || got != usable[1+i] {
				t.Errorf("WithVolume of %s = %v, %v", r.Name, got, err)
			}
		}
		began := time.Now()
		_, err = files.Create(t.Context(), NewVolume{Name: "b", Size: small})
		wantKind(t, "Create", err, fault.Uncertain)
		if took := time.Since(began); took != namesBound {
			t.Errorf("the create took %v, want %v", took, namesBound)
		}
		close(hang)
		_, _, err = s.FindByName(t.Context(), "b")
		wantKind(t, "FindByName", err, fault.NotFound)
		mustCreate(t, files, "b", small)
	})
}

// A pool whose flag was removed is missing as one without its disk is: what it has is not reported as gone.
func TestPoolThatIsNoLongerConfiguredIsMissing(t *testing.T) {
	dir := t.TempDir()
	s, first, fast := pair(t, dir)
	here, lost := mustCreate(t, first, "here", small), mustCreate(t, fast, "lost", small)
	idFile := s.members[1].cfg.IDFile

	without := &Set{opening: make(chan struct{}, 1), members: s.members[:1]}
	_, err := without.WithVolume(t.Context(), lost.ID)
	wantKind(t, "WithVolume", err, fault.Precondition)
	if err == nil || !strings.Contains(err.Error(), fast.dir) || !strings.Contains(err.Error(), "remove "+idFile) {
		t.Errorf("WithVolume = %v, want the pool and its file named", err)
	}
	_, err = without.WithSnapshot(t.Context(), NewID())
	wantKind(t, "WithSnapshot", err, fault.Precondition)
	_, _, err = without.FindByName(t.Context(), "lost")
	wantKind(t, "FindByName", err, fault.Precondition)
	wantKind(t, "Check", without.Check(t.Context()), fault.Precondition)
	if got, err := without.WithVolume(t.Context(), here.ID); err != nil || got != first {
		t.Errorf("WithVolume of the other pool = %v, %v", got, err)
	}

	// A pool that was renamed has a second file with the same id.
	renamed := &member{cfg: s.members[1].cfg}
	renamed.cfg.Name, renamed.cfg.IDFile = "slow", filepath.Join(dir, "state", "pool-idslow")
	_, err = Open(t.Context(), renamed.cfg)
	must(t, err)
	storage := Storage(fast)
	renamed.pool.Store(&storage)
	both := &Set{opening: make(chan struct{}, 1), members: []*member{s.members[0], renamed}}
	wantKind(t, "Check with the pool renamed", both.Check(t.Context()), fault.None)

	must(t, os.Remove(idFile))
	must(t, os.Remove(renamed.cfg.IDFile))
	wantKind(t, "Check without the file", without.Check(t.Context()), fault.None)
	got, err := without.WithVolume(t.Context(), lost.ID)
	must(t, err)
	wantKind(t, "Delete without the file", got.Delete(t.Context(), lost.ID), fault.NotFound)
}

// A folder that cannot be read proves nothing about the volumes in it.
func TestUnreadablePoolIsNotTakenForEmpty(t *testing.T) {
	s, _, fast := pair(t, t.TempDir())
	lost := mustCreate(t, fast, "lost", small)
	folder := fast.path(string(volumes))
	must(t, os.Rename(folder, folder+" before"))
	must(t, os.WriteFile(folder, nil, 0o600))
	if _, err := s.WithVolume(t.Context(), lost.ID); err == nil || fault.Of(err) == fault.NotFound {
		t.Errorf("WithVolume = %v, want an error other than NotFound", err)
	}
}
