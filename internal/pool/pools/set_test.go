package pools

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/files"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/lvm"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/snapshots"
)

var must, wantKind, wantReason = expect.NoError, expect.Kind, expect.Reason

// two are the configurations of two pools of one node.
func two(t *testing.T, dir string) []pool.Config {
	t.Helper()
	first, fast := configOf(t, filepath.Join(dir, "pool")), configOf(t, filepath.Join(dir, "poolfast"))
	fast.Name = "fast"
	return []pool.Config{first, fast}
}

// pair returns a set of two pools.
func pair(t *testing.T, dir string) (*Set, pool.Storage, pool.Storage) {
	t.Helper()
	s, err := Open(t.Context(), two(t, dir)...)
	must(t, err)
	members := map[string]pool.Storage{}
	for _, p := range s.Opened() {
		members[p.Name()] = p
	}
	return s, members[pool.DefaultName], members["fast"]
}

// unmount takes the disk of a pool away.
func unmount(t *testing.T, cfg pool.Config) (mount func()) {
	t.Helper()
	mounts.Write(t, cfg.MountTable)
	must(t, os.Rename(cfg.Dir, cfg.Dir+" disk"))
	must(t, os.Mkdir(cfg.Dir, 0o700))
	return func() {
		t.Helper()
		must(t, os.Remove(cfg.Dir))
		must(t, os.Rename(cfg.Dir+" disk", cfg.Dir))
		mounts.Write(t, cfg.MountTable, cfg.Dir)
	}
}

// C14: nodes have the same flags and different disks: where none is mounted the others serve, and nothing waits for it.
func TestPoolThatIsNotOnThisNode(t *testing.T) {
	configs := two(t, t.TempDir())
	mount := unmount(t, configs[1])
	s, err := Open(t.Context(), configs...)
	must(t, err)
	h := pool.Handle{Node: "n1", Pool: "fast", ID: pool.NewID()}
	_, err = s.Named(t.Context(), "fast")
	wantReason(t, "Named", err, fault.PoolUnusable)
	if err == nil || !errors.Is(err, pool.ErrNotHere) || !strings.Contains(err.Error(), "no filesystem is mounted at "+configs[1].Dir) {
		t.Errorf("Named = %v, want its folder named", err)
	}
	_, err = s.Of(t.Context(), h)
	wantReason(t, "Of", err, fault.PoolUnusable)
	_, _, err = s.FindByName(t.Context(), "a")
	wantKind(t, "FindByName", err, fault.NotFound)
	_, _, err = s.FindSnapshot(t.Context(), "a")
	wantKind(t, "FindSnapshot", err, fault.NotFound)
	wantKind(t, "Check", s.Check(t.Context()), fault.None)
	if left, err := os.ReadDir(configs[1].Dir); err != nil || len(left) > 0 {
		t.Errorf("the bare folder holds %v, %v", left, err)
	}

	asked := configs[1]
	asked.MustExist = true
	there, err := Open(t.Context(), configs[0], asked)
	must(t, err)
	wantReason(t, "Check of pools that must exist", there.Check(t.Context()), fault.PoolUnusable)

	mount()
	_, err = s.Of(t.Context(), h)
	must(t, err)
	unmount(t, configs[1])
	wantReason(t, "Check when it has gone again", s.Check(t.Context()), fault.PoolUnusable)

	unmount(t, configs[0])
	_, err = Open(t.Context(), configs...)
	wantReason(t, "OpenSet of none", err, fault.PoolUnusable)
	if err == nil || !strings.Contains(err.Error(), configs[0].Dir+";") || !strings.Contains(err.Error(), configs[1].Dir+";") {
		t.Errorf("OpenSet of none = %v, want both folders", err)
	}
	_, err = Open(t.Context(), configs[0])
	wantReason(t, "OpenSet of one that is not here", err, fault.PoolUnusable)
}

// L3: the reservations of a pool do not count for another one. A filesystem that is mounted twice is one pool, with one
// name.
func TestPoolsOnOneFilesystemAreRefused(t *testing.T) {
	home := t.TempDir()
	first, again := configOf(t, filepath.Join(home, "a")), pool.Config{Name: "second", Dir: filepath.Join(home, "b"), Node: "n1"}
	must(t, os.Symlink(first.Dir, again.Dir))
	again.MountTable = first.MountTable
	s, err := Open(t.Context(), first, again)
	must(t, err)
	err = s.Check(t.Context())
	wantReason(t, "Check", err, fault.PoolUnusable)
	if err == nil || !strings.Contains(err.Error(), again.Dir) || !strings.Contains(err.Error(), `its name is "default"`) {
		t.Errorf("Check = %v, want the second folder and whose it is", err)
	}
}

func TestSetWithoutAUsablePoolIsRefused(t *testing.T) {
	full := configOf(t, filepath.Join(t.TempDir(), "full"))
	must(t, os.Mkdir(filepath.Join(full.Dir, "other"), 0o700))
	_, err := Open(t.Context(), full)
	wantKind(t, "OpenSet", err, fault.Precondition)
	none := configOf(t, filepath.Join(t.TempDir(), "none"))
	none.Name, none.Node, none.MustExist = "fast", "n2", true
	_, err = Open(t.Context(), full, none)
	if err == nil || !strings.Contains(err.Error(), "pool default") || !strings.Contains(err.Error(), "pool fast") {
		t.Errorf("OpenSet = %v, want what is wrong with each", err)
	}
}

// C14: a pool that has another name than the flag says is not used.
func TestPoolOfAnotherName(t *testing.T) {
	dir := t.TempDir()
	s, _, fast := pair(t, dir)
	_, err := s.Named(t.Context(), "slow")
	wantKind(t, "Named", err, fault.NotFound)
	if err == nil || !strings.Contains(err.Error(), "there is default, fast") {
		t.Errorf("Named = %v, want the names that there are", err)
	}
	// The ids of its volumes have the name that a pool was made with.
	cfg := configOf(t, fast.Dir())
	_, err = files.Open(t.Context(), cfg)
	wantReason(t, "Open without its name", err, fault.PoolUnusable)
	cfg.Name = "slow"
	_, err = files.Open(t.Context(), cfg)
	wantReason(t, "Open under another name", err, fault.PoolUnusable)
	cfg.Name, cfg.Node, cfg.MustExist = "", "", true
	if p, err := files.Open(t.Context(), cfg); err != nil || p.Name() != "fast" {
		t.Errorf("Open of whatever is there = %v, %v, want fast", p, err)
	}
	for name, good := range map[string]bool{
		"fast": true, "a": true, "0-9": true, strings.Repeat("a", 63): true,
		"": false, "-a": false, "a-": false, "A": false, "a.b": false, "../a": false, "a/b": false, "a\n": false, strings.Repeat("a", 64): false,
	} {
		if err := pool.CheckName(name); (err == nil) != good {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
}

// C14: a volume is looked for in the pool that its id names and in no other.
func TestTheIDNamesThePool(t *testing.T) {
	s, first, fast := pair(t, t.TempDir())
	for _, p := range []pool.Storage{first, fast} {
		vol := mustCreate(t, p, "in "+p.Name())
		snap, err := snapshots.Add(p.Dir(), vol.ID, "of "+p.Name())
		must(t, err)
		h, err := pool.ParseHandle(p.Handle(vol.ID).String())
		must(t, err)
		if got, err := s.Of(t.Context(), h); got != p || err != nil {
			t.Errorf("Of = %v, %v, want %v", got, err, p)
		}
		if got, e, err := s.FindByName(t.Context(), "in "+p.Name()); got != p || e.ID != vol.ID || err != nil {
			t.Errorf("FindByName = %v, %+v, %v", got, e, err)
		}
		if got, e, err := s.FindSnapshot(t.Context(), "of "+p.Name()); got != p || e.ID != snap || err != nil {
			t.Errorf("FindSnapshot = %v, %+v, %v", got, e, err)
		}
	}
	_, _, err := s.FindByName(t.Context(), "none")
	wantKind(t, "FindByName of none", err, fault.NotFound)
	// What is in a pool that is not configured exists.
	_, err = s.Of(t.Context(), pool.Handle{Node: "n1", Pool: "slow", ID: pool.NewID()})
	wantReason(t, "Of a pool that is not configured", err, fault.PoolUnusable)
	if errors.Is(err, fault.NotFound) {
		t.Errorf("Of = %v, which a delete takes for gone", err)
	}
	if err == nil || !strings.Contains(err.Error(), "start with that pool in --local-pool") {
		t.Errorf("Of = %v, want the remedy", err)
	}
}

// C1: a name is unique in its pool. A search that finds two says so.
func TestNamesAreOfAPool(t *testing.T) {
	s, first, fast := pair(t, t.TempDir())
	mustCreate(t, first, "a")
	mustCreate(t, fast, "a")
	_, err := fast.Create(t.Context(), pool.NewVolume{Name: "a", Size: pool.SmallestVolume})
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
	here, lost := mustCreate(t, first, "here"), mustCreate(t, fast, "lost")
	mount := unmount(t, s.members["fast"].cfg)

	check := func(what string, s *Set) {
		t.Helper()
		if got, err := s.Of(t.Context(), first.Handle(here.ID)); err != nil || got.Dir() != first.Dir() {
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
		if usable, _ := s.Pools(t.Context()); len(usable) != 1 || usable[0].Dir() != first.Dir() {
			t.Errorf("%s: usable are %v", what, usable)
		}
	}
	check("lost while in use", s)
	mustCreate(t, first, "another")

	if left, err := os.ReadDir(fast.Dir()); err != nil || len(left) > 0 {
		t.Errorf("the bare folder holds %v, %v", left, err)
	}
	mount()
	// A pool that is there and fails its checks.
	must(t, os.Chmod(fast.Dir(), 0o777))
	again, err := Open(t.Context(), s.members[pool.DefaultName].cfg, s.members["fast"].cfg)
	must(t, err)
	check("unfit at the start", again)
	must(t, os.Chmod(fast.Dir(), 0o700))
	wantKind(t, "Check when it is fit", again.Check(t.Context()), fault.None)

	wantKind(t, "Check with the disk back", s.Check(t.Context()), fault.None)
	if e, err := fast.Get(t.Context(), lost.ID); err != nil || e.Kind != pool.Whole {
		t.Errorf("Get with the disk back = %+v, %v", e, err)
	}
}

// groupOf is that of the pool "group" on the volume group of a host.
func groupOf(t *testing.T, host *lvm.Host) pool.Config {
	t.Helper()
	cfg := host.Config(t)
	cfg.Name = "group"
	return cfg
}

// L9: a volume group whose disk hangs stops no call for another pool.
func TestPoolThatHangsStopsNoOther(t *testing.T) {
	host := lvm.New(1 << 30)
	group, folder := groupOf(t, host), filepath.Join(t.TempDir(), "pool")
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), group, configOf(t, folder))
		must(t, err)
		hang := make(chan struct{})
		host.Hook = func([]string) { <-hang }
		p, err := s.Of(t.Context(), pool.Handle{Node: "n1", Pool: pool.DefaultName, ID: pool.NewID()})
		must(t, err)
		made := mustCreate(t, p, "a")
		if _, e, err := s.FindByName(t.Context(), "a"); err != nil || e.ID != made.ID {
			t.Errorf("FindByName = %+v, %v, want volume %s", e, err, made.ID)
		}
		began := time.Now()
		err = s.Check(t.Context())
		wantReason(t, "Check", err, fault.PoolUnusable)
		if waited := time.Since(began); waited > 0 || err == nil || !strings.Contains(err.Error(), "lvm:vg") {
			t.Errorf("Check = %v after %s, want at once the pool that does not answer", err, waited)
		}
		must(t, p.Delete(t.Context(), made.ID))
		close(hang)
		synctest.Wait()
		must(t, s.Check(t.Context()))
		must(t, s.Close(t.Context()))
	})
}

// L9: the disk of a volume group hangs when the program starts. The others serve, and it is opened once its disk answers.
func TestPoolThatHangsAtTheStartStopsNoOther(t *testing.T) {
	host := lvm.New(1 << 30)
	group, folder := groupOf(t, host), filepath.Join(t.TempDir(), "pool")
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		host.Hook = func([]string) { <-hang }
		s, err := Open(t.Context(), group, configOf(t, folder))
		must(t, err)
		if took := s.Opened(); len(took) != 1 || took[0].Name() != pool.DefaultName {
			t.Fatalf("Opened = %v, want the pool that answers", took)
		}
		h := pool.Handle{Node: "n1", Pool: "group", ID: pool.NewID()}
		began := time.Now()
		for range 3 {
			_, err = s.Of(t.Context(), h)
			wantReason(t, "Of", err, fault.PoolUnusable)
			wantReason(t, "Check", s.Check(t.Context()), fault.PoolUnusable)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("calls for a pool that hangs wait for %s, want none", waited)
		}
		close(hang)
		synctest.Wait()
		_, err = s.Of(t.Context(), h)
		must(t, err)
		must(t, s.Close(t.Context()))
	})
}

// The only pool of a node stops no other, so a slow one is waited for: at the start of the program, and by each call.
func TestTheOnlyPoolIsWaitedFor(t *testing.T) {
	host := lvm.New(1 << 30)
	group := groupOf(t, host)
	synctest.Test(t, func(t *testing.T) {
		slow := func() {
			hang := make(chan struct{})
			host.Hook = func([]string) { <-hang }
			time.AfterFunc(time.Minute, func() { close(hang) })
		}
		slow()
		s, err := Open(t.Context(), group)
		must(t, err)
		slow()
		must(t, s.Check(t.Context()))
		slow()
		_, _, err = s.FindByName(t.Context(), "a")
		wantKind(t, "FindByName", err, fault.NotFound)
		must(t, s.Close(t.Context()))
	})
}

// C14: a folder that cannot be read proves nothing about the volumes in it.
func TestUnreadablePoolIsNotTakenForEmpty(t *testing.T) {
	s, _, fast := pair(t, t.TempDir())
	lost := mustCreate(t, fast, "lost")
	folder := filepath.Join(fast.Dir(), "volumes")
	must(t, os.Rename(folder, folder+" before"))
	must(t, os.WriteFile(folder, nil, 0o600))
	if e, err := fast.Get(t.Context(), lost.ID); err != nil || e.Kind != pool.Damaged {
		t.Errorf("Get = %+v, %v, want it damaged", e, err)
	}
	wantReason(t, "Delete", fast.Delete(t.Context(), lost.ID), fault.VolumeDamaged)
	if _, _, err := s.FindByName(t.Context(), "lost"); err == nil || fault.Of(err) == fault.NotFound {
		t.Errorf("FindByName = %v, want an error other than NotFound", err)
	}
}

// configOf is that of a pool in a folder, which is made. If nothing is mounted there, its mount table says that an ext4 is.
func configOf(t *testing.T, dir string) pool.Config {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	return pool.Config{Dir: dir, Node: "n1", MountTable: mounts.Table(t, dir)}
}

func mustCreate(t *testing.T, p pool.Storage, name string) pool.Record {
	t.Helper()
	r, err := p.Create(t.Context(), pool.NewVolume{Name: name, Size: pool.SmallestVolume})
	must(t, err)
	return r
}
