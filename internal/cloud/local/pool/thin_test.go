package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/lvm"
)

const gib = int64(1) << 30

func thinConfig(t *testing.T, host *lvm.Host) Config {
	t.Helper()
	return Config{Dir: "lvm:vg/thin", Node: "n1", LockDir: t.TempDir(), LVM: host.Run}
}

func openThinPool(t *testing.T, cfg Config) *ThinPool {
	t.Helper()
	s, err := openStorage(t.Context(), cfg, func() []Storage { return nil })
	must(t, err)
	return s.(*ThinPool)
}

func thinVolume(t *testing.T, p *ThinPool, name string, size int64) Record {
	t.Helper()
	r, err := p.Create(t.Context(), NewVolume{Name: name, Size: size})
	must(t, err)
	return r
}

// Every volume can be written in full: the sizes of all, of snapshots and of foreign volumes, are never above the pool's.
func TestThinPoolIsNeverOvercommitted(t *testing.T) {
	host := lvm.New(gib)
	p := openThinPool(t, thinConfig(t, host))
	group := host.Groups()[0]
	free := func() int64 {
		t.Helper()
		n, err := p.Free(t.Context())
		must(t, err)
		return n
	}
	if got := free(); got != gib {
		t.Fatalf("Free = %d, want the whole pool", got)
	}
	vol := thinVolume(t, p, "a", 300<<20)
	if got, want := free(), gib-300<<20; got != want {
		t.Errorf("Free after a create = %d, want %d", got, want)
	}
	snap, err := p.CreateSnapshot(t.Context(), NewSnapshot{Name: "s", Volume: vol.ID})
	must(t, err)
	group.Volumes = append(group.Volumes, &lvm.Volume{Name: "foreign", Pool: "thin", Size: 100 << 20})
	if got, want := free(), gib-700<<20; got != want {
		t.Errorf("Free with a snapshot and a foreign volume = %d, want %d", got, want)
	}
	rest := free()
	_, err = p.Create(t.Context(), NewVolume{Name: "b", Size: rest + 1})
	wantKind(t, "Create of more than is free", err, fault.Exhausted)
	_, err = p.Create(t.Context(), NewVolume{Name: "b", Size: rest + 1, From: From{Snapshot: snap.ID}})
	wantKind(t, "a restore of more than is free", err, fault.Exhausted)
	_, err = p.Grow(t.Context(), vol.ID, vol.Size+rest+1)
	wantKind(t, "Grow by more than is free", err, fault.OutOfRange)
	if got, err := p.Grow(t.Context(), vol.ID, vol.Size+rest); got != vol.Size+rest || err != nil {
		t.Errorf("Grow by what is free = %d, %v", got, err)
	}
	_, err = p.CreateSnapshot(t.Context(), NewSnapshot{Name: "t", Volume: vol.ID})
	wantKind(t, "a snapshot in a full pool", err, fault.Exhausted)
	if got := free(); got != 0 {
		t.Errorf("Free = %d, want 0", got)
	}
	group.Volumes = append(group.Volumes, &lvm.Volume{Name: "more", Pool: "thin", Size: gib})
	if got := free(); got != 0 {
		t.Errorf("Free of a pool that another program has overcommitted = %d, want 0", got)
	}
}

func TestThinPoolHasMetadataForWhatItPromises(t *testing.T) {
	host := lvm.New(100 * gib)
	host.Volume("thin").Metadata = 4 << 20 // enough for 4 GiB at most
	p := openThinPool(t, thinConfig(t, host))
	free, err := p.Free(t.Context())
	if err != nil || free < gib || free > 5*gib {
		t.Errorf("Free = %d, %v, want what the metadata is enough for", free, err)
	}
	_, err = p.Create(t.Context(), NewVolume{Name: "a", Size: 10 * gib})
	wantKind(t, "Create", err, fault.Exhausted)
}

func TestThinSizesAreWholeExtents(t *testing.T) {
	host := lvm.New(gib)
	host.Groups()[0].Extent = 32 << 20
	p := openThinPool(t, thinConfig(t, host))
	if r := thinVolume(t, p, "a", 33<<20); r.Size != 64<<20 {
		t.Errorf("the volume has %d bytes, want two extents", r.Size)
	}
	_, err := p.Create(t.Context(), NewVolume{Name: "b", Size: 33 << 20, Limit: 40 << 20})
	wantKind(t, "Create with a limit between two extents", err, fault.OutOfRange)
}

func TestThinPoolsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(h *lvm.Host, cfg *Config)
		want   fault.Kind
	}{
		"no thin pool":        {func(h *lvm.Host, _ *Config) { h.Groups()[0].Volumes = nil }, fault.Precondition},
		"no volume group":     {func(h *lvm.Host, _ *Config) { h.Set() }, fault.Precondition},
		"a linear volume":     {func(h *lvm.Host, _ *Config) { h.Volume("thin").Pool = "other" }, fault.Precondition},
		"two of this name":    {func(h *lvm.Host, _ *Config) { h.Add("vg").Volumes = h.Groups()[0].Volumes }, fault.Precondition},
		"a disk that lacks":   {func(h *lvm.Host, _ *Config) { h.Groups()[0].Missing = 1 }, fault.Precondition},
		"chunks not zeroed":   {func(h *lvm.Host, _ *Config) { h.Volume("thin").NoZero = true }, fault.Precondition},
		"another node's":      {func(h *lvm.Host, _ *Config) { h.Volume("thin").Tags = []string{"cloudblock-node=n2"} }, fault.Precondition},
		"no pool in a folder": {func(_ *lvm.Host, cfg *Config) { cfg.MustExist = true }, fault.Precondition},
		"only a volume group": {func(_ *lvm.Host, cfg *Config) { cfg.Dir = "lvm:vg" }, fault.InvalidArgument},
		"a name with a quote": {func(_ *lvm.Host, cfg *Config) { cfg.Dir = `lvm:vg"/thin` }, fault.InvalidArgument},
		"an option as a name": {func(_ *lvm.Host, cfg *Config) { cfg.Dir = "lvm:-vg/thin" }, fault.InvalidArgument},
		"no program":          {func(_ *lvm.Host, cfg *Config) { cfg.LVM = nil }, fault.Precondition},
	} {
		t.Run(name, func(t *testing.T) {
			host := lvm.New(gib)
			cfg := thinConfig(t, host)
			t.Setenv("PATH", t.TempDir())
			c.change(host, &cfg)
			before := fmt.Sprint(host.Groups())
			_, err := openStorage(t.Context(), cfg, nil)
			wantKind(t, "open", err, c.want)
			if after := fmt.Sprint(host.Groups()); after != before {
				t.Errorf("the volume groups have changed: %s, before %s", after, before)
			}
		})
	}
}

// Another volume group of the same name is another pool.
func TestThinPoolIsTheOneThatItWas(t *testing.T) {
	host := lvm.New(gib)
	cfg := thinConfig(t, host)
	cfg.IDFile = filepath.Join(t.TempDir(), "state", "pool-id")
	p := openThinPool(t, cfg)
	vol := thinVolume(t, p, "a", 16<<20)
	openThinPool(t, cfg)

	other := lvm.New(gib)
	other.Add("spare") // other UUIDs
	other.Groups()[0].UUID = other.Groups()[1].UUID
	host.Set(other.Groups()[0])
	wantKind(t, "Delete in the other volume group", p.Delete(t.Context(), vol.ID), fault.Precondition)
	wantKind(t, "Check", p.Check(t.Context()), fault.Precondition)
	_, err := openStorage(t.Context(), cfg, nil)
	wantKind(t, "open the other one", err, fault.Precondition)
	host.Set()
	_, err = openStorage(t.Context(), cfg, nil)
	wantKind(t, "open none", err, fault.Precondition)
	if err == nil || !strings.Contains(err.Error(), "is its disk there?") {
		t.Errorf("open none = %v", err)
	}
}

func TestThinPoolLeavesForeignVolumesAlone(t *testing.T) {
	host := lvm.New(gib)
	p := openThinPool(t, thinConfig(t, host))
	id := NewID()
	foreign := []*lvm.Volume{
		{Name: "data", Pool: "thin", UUID: "f-1", Size: 16 << 20, Tags: []string{creatingTag}},
		{Name: "cloudblock-data", Pool: "thin", UUID: "f-2", Size: 16 << 20, Tags: []string{creatingTag}},
		{Name: "cloudblock-" + string(id), Pool: "thin", UUID: "f-3", Size: 16 << 20},
		{Name: "cloudblock-" + string(NewID()), UUID: "f-4", Size: 16 << 20, Tags: []string{creatingTag}}, // not in the pool
	}
	group := host.Groups()[0]
	group.Volumes = append(group.Volumes, foreign...)
	thinVolume(t, p, "a", 16<<20)
	entries, err := p.List(t.Context())
	must(t, err)
	if len(entries) != 2 {
		t.Errorf("List = %+v, want the volume and what has the name of one", entries)
	}
	wantKind(t, "Delete of what has no record", p.Delete(t.Context(), id), fault.Precondition)
	for _, v := range foreign {
		if host.Volume(v.Name) != v {
			t.Errorf("%s was removed", v.Name)
		}
	}
	must(t, p.Remove(t.Context(), id)) // by an operator
	if host.Volume(foreign[2].Name) != nil {
		t.Error("Remove has not removed it")
	}
}

func TestThinVolumeInUse(t *testing.T) {
	host := lvm.New(gib)
	p := openThinPool(t, thinConfig(t, host))
	vol := thinVolume(t, p, "a", 16<<20)
	lv := host.Volume(p.FileName(vol.ID))
	if lv.Active {
		t.Error("a new volume is active")
	}
	for range 2 {
		must(t, p.Activate(t.Context(), vol.ID))
	}
	wantKind(t, "Delete of an active volume", p.Delete(t.Context(), vol.ID), fault.Precondition)
	wantKind(t, "Remove of an active volume", p.Remove(t.Context(), vol.ID), fault.Precondition)
	lv.Open = true
	wantKind(t, "Deactivate of an open volume", p.Deactivate(t.Context(), vol.ID), fault.Busy)
	if _, err := p.CreateSnapshot(t.Context(), NewSnapshot{Name: "s", Volume: vol.ID}); err != nil {
		t.Errorf("CreateSnapshot of an open volume = %v", err)
	}
	lv.Open = false
	for range 2 {
		must(t, p.Deactivate(t.Context(), vol.ID))
	}
	must(t, p.Delete(t.Context(), vol.ID))
	must(t, p.Deactivate(t.Context(), vol.ID))
	wantKind(t, "Activate of nothing", p.Activate(t.Context(), vol.ID), fault.NotFound)
}

func TestThinRecordsKeepWhatTheyAreGiven(t *testing.T) {
	host := lvm.New(gib)
	cfg := thinConfig(t, host)
	p := openThinPool(t, cfg)
	tags := []Pair{{"claim", "ä b,c=\"d\"\n"}, {"long", strings.Repeat("x", 3000)}}
	want, err := p.Create(t.Context(), NewVolume{Name: "näme, with a comma", Size: 16 << 20, Tags: tags})
	must(t, err)
	got, err := openThinPool(t, cfg).Get(t.Context(), want.ID)
	must(t, err)
	want.other, got.Record.other = nil, nil
	if !reflect.DeepEqual(got.Record, want) || got.Kind != Whole {
		t.Errorf("Get = %+v, want %+v", got, want)
	}
	_, err = p.Create(t.Context(), NewVolume{Name: "b", Size: 16 << 20, Tags: []Pair{{"long", strings.Repeat("x", maxThinRecord)}}})
	wantKind(t, "Create with a record that is too long", err, fault.InvalidArgument)
	lv := host.Volume(p.FileName(want.ID))
	lv.Tags = lv.Tags[1:]
	if got, err = p.Get(t.Context(), want.ID); err != nil || got.Kind != Damaged {
		t.Errorf("Get without a part of the record = %+v, %v, want damaged", got, err)
	}
	wantKind(t, "Delete of a damaged volume", p.Delete(t.Context(), want.ID), fault.Precondition)
}

// The process is killed at each command in turn, before and after its effect. The next process finds the state before
// or the state after, or completes the call when it is repeated.
func TestThinPoolAfterAKill(t *testing.T) {
	type rig struct {
		p        *ThinPool
		vol      Record
		snapshot Record
	}
	for name, call := range map[string]func(t *testing.T, r rig) error{
		"create": func(t *testing.T, r rig) error {
			_, err := r.p.Create(t.Context(), NewVolume{Name: "new", Size: 32 << 20})
			return err
		},
		"restore": func(t *testing.T, r rig) error {
			_, err := r.p.Create(t.Context(), NewVolume{Name: "new", Size: 32 << 20, From: From{Snapshot: r.snapshot.ID}})
			return err
		},
		"snapshot": func(t *testing.T, r rig) error {
			_, err := r.p.CreateSnapshot(t.Context(), NewSnapshot{Name: "new", Volume: r.vol.ID})
			return err
		},
		"delete":          func(t *testing.T, r rig) error { return r.p.Delete(t.Context(), r.vol.ID) },
		"delete snapshot": func(t *testing.T, r rig) error { return r.p.DeleteSnapshot(t.Context(), r.snapshot.ID) },
		"grow": func(t *testing.T, r rig) error {
			_, err := r.p.Grow(t.Context(), r.vol.ID, 32<<20)
			return err
		},
		"activate": func(t *testing.T, r rig) error { return r.p.Activate(t.Context(), r.vol.ID) },
	} {
		for _, effect := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/effect=%t", name, effect), func(t *testing.T) {
				kills := 0
				for n, killed := 1, true; killed; n++ {
					host := lvm.New(gib)
					cfg := thinConfig(t, host)
					r := rig{p: openThinPool(t, cfg)}
					r.vol = thinVolume(t, r.p, "old", 16<<20)
					var err error
					r.snapshot, err = r.p.CreateSnapshot(t.Context(), NewSnapshot{Name: "old", Volume: r.vol.ID})
					must(t, err)
					host.Kill(n, effect)
					err = call(t, r)
					if killed = host.Restart(); !killed {
						must(t, err)
						break
					}
					kills++
					if !errors.Is(err, lvm.ErrKilled) {
						t.Errorf("kill %d: %v", n, err)
					}
					r.p = openThinPool(t, cfg)
					checkThin(t, r.p, host)
					err = call(t, r)
					if kind := fault.Of(err); err != nil && kind != fault.Conflict && kind != fault.NotFound {
						t.Errorf("after kill %d: %v", n, err)
					}
					checkThin(t, r.p, host)
				}
				if kills == 0 {
					t.Error("nothing was killed")
				}
			})
		}
	}
}

// checkThin checks that each volume is whole and has its size, and none is there twice.
func checkThin(t *testing.T, p *ThinPool, host *lvm.Host) {
	t.Helper()
	names := map[string]bool{}
	for _, list := range []func() ([]Entry, error){
		func() ([]Entry, error) { return p.List(t.Context()) }, func() ([]Entry, error) { return p.ListSnapshots(t.Context()) },
	} {
		entries, err := list()
		must(t, err)
		for _, e := range entries {
			key := fmt.Sprint(e.Snapshot, e.Record.Name)
			if e.Kind != Whole || names[key] || e.Record.Name == "new" && !e.Snapshot && e.Size != 32<<20 {
				t.Errorf("entry %+v", e)
			}
			names[key] = true
		}
	}
	if got := len(host.Groups()[0].Volumes) - 1; got != len(names) {
		t.Errorf("the pool has %d logical volumes and %d entries", got, len(names))
	}
}

// A volume group on a disk that does not answer stops no caller for longer than it has patience.
func TestThinPoolOnADiskThatHangs(t *testing.T) {
	host := lvm.New(gib)
	cfg := thinConfig(t, host)
	hang := make(chan struct{})
	stuck := make(chan struct{}, 8)
	cfg.LVM = func(args ...string) ([]byte, error) {
		if args[0] == "lvcreate" {
			stuck <- struct{}{}
			<-hang
		}
		return host.Run(args...)
	}
	p := openThinPool(t, cfg)
	ctx, cancel := contextUntil(t, stuck)
	defer cancel()
	_, err := p.Create(ctx, NewVolume{Name: "a", Size: 16 << 20})
	wantKind(t, "Create", err, fault.Uncertain)
	close(hang)
	if e, err := p.find(t.Context(), volumes, "a"); err != nil || e.Size != 16<<20 {
		t.Errorf("find = %+v, %v, want the volume when the command has ended", e, err)
	}
	must(t, p.Close(t.Context()))
	if _, err := os.Stat(p.Dir()); err != nil {
		t.Error(err)
	}
}

// Without the lock, too: the calls that a hanging lvs stops wait as long as they last, and begin no other.
func TestThinPoolWhoseReadHangs(t *testing.T) {
	host := lvm.New(gib)
	cfg := thinConfig(t, host)
	var hangs atomic.Bool
	var begun atomic.Int32
	hang := make(chan struct{})
	cfg.LVM = func(args ...string) ([]byte, error) {
		if hangs.Load() && args[0] == "lvs" {
			begun.Add(1)
			<-hang
		}
		return host.Run(args...)
	}
	p := openThinPool(t, cfg)
	hangs.Store(true)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		wantKind(t, "Check", p.Check(ctx), fault.Uncertain)
		_, err := p.holds(ctx, volumeRef(ID(strings.Repeat("0", 32))))
		wantKind(t, "holds", err, fault.Uncertain)
		cancel()
	}
	if n := begun.Load(); n != 1 {
		t.Errorf("%d programs were begun, want one", n)
	}
	close(hang)
	must(t, p.Check(t.Context()))
}

// contextUntil returns a context that ends when something comes from the channel.
func contextUntil(t *testing.T, c <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		select {
		case <-c:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Examine refuses a thin pool for what Open would refuse it for, and gives it no tag.
func TestExamineOfAThinPool(t *testing.T) {
	host := lvm.New(gib)
	cfg := thinConfig(t, host)
	examined := func(what string, cfg Config, want error) {
		t.Helper()
		if own, err := Examine(t.Context(), cfg); !errors.Is(err, want) || !own {
			t.Errorf("%s: Examine = %t, %v, want %v", what, own, err, want)
		}
	}
	examined("a new pool", cfg, nil)
	if p := openThinPool(t, Config{Dir: cfg.Dir, Node: "n2", LockDir: cfg.LockDir, LVM: cfg.LVM}); p.node != "n2" {
		t.Errorf("Examine gave the pool to node %q", p.node)
	}
	examined("the pool of another node", cfg, fault.PoolUnusable)
	absent := cfg
	absent.Dir = "lvm:vg/other"
	examined("no such pool", absent, fault.PoolUnusable)
	absent.Name = "fast"
	examined("a named pool that this node lacks", absent, fault.NotFound)
	host.Groups()[0].Missing = 1
	cfg.Node = "n2"
	examined("a pool without its disk", cfg, fault.PoolUnusable)
}
