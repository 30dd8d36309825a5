package lvm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/lvm"
)

var must, wantKind, wantReason = expect.NoError, expect.Kind, expect.Reason

const gib = int64(1) << 30

// groupPool returns a pool on the only volume group of a host.
func groupPool(t *testing.T) (*lvm.Host, *Pool) {
	t.Helper()
	host := lvm.New(gib)
	return host, openPool(t, host.Config(t))
}

func openPool(t *testing.T, cfg pool.Config) *Pool {
	t.Helper()
	p, err := Open(t.Context(), cfg)
	must(t, err)
	return p
}

func mustCreate(t *testing.T, p *Pool, name string, size int64) pool.Record {
	t.Helper()
	r, err := p.Create(t.Context(), pool.NewVolume{Name: name, Size: size})
	must(t, err)
	return r
}

// L3: a volume group never promises more extents than it has.
func TestGroupPoolIsNeverOvercommitted(t *testing.T) {
	host, p := groupPool(t)
	free := func() int64 {
		t.Helper()
		n, err := p.Free(t.Context())
		must(t, err)
		return n
	}
	if got := free(); got != gib {
		t.Fatalf("Free = %d, want the whole group", got)
	}
	vol := mustCreate(t, p, "a", 300<<20)
	if got, want := free(), gib-300<<20; got != want {
		t.Errorf("Free after a create = %d, want %d", got, want)
	}
	rest := free()
	_, err := p.Create(t.Context(), pool.NewVolume{Name: "b", Size: rest + 1})
	wantKind(t, "Create of more than is free", err, fault.Exhausted)
	_, err = p.Grow(t.Context(), vol.ID, vol.Size+rest+1)
	wantKind(t, "Grow by more than is free", err, fault.OutOfRange)
	if n := len(host.Groups()[0].Volumes); n != 1 {
		t.Errorf("%d logical volumes are there after the refusals, want one", n)
	}
	if got, err := p.Grow(t.Context(), vol.ID, vol.Size+rest); got != vol.Size+rest || err != nil {
		t.Errorf("Grow by what is free = %d, %v", got, err)
	}
	if got := free(); got != 0 {
		t.Errorf("Free = %d, want 0", got)
	}
}

// L3: LVM gives no extents of a disk that an operator drains (pvchange -xn) to a volume, and still counts them as free.
func TestGroupPoolWithADrainedDisk(t *testing.T) {
	host, p := groupPool(t)
	mustCreate(t, p, "on the disk", 16<<20)
	host.Groups()[0].Drained = 64 // with the volume
	const rest = gib - 64*4<<20
	if free, err := p.Free(t.Context()); free != rest || err != nil {
		t.Errorf("Free = %d, %v, want %d", free, err, rest)
	}
	_, err := p.Create(t.Context(), pool.NewVolume{Name: "too large", Size: rest + 1})
	wantKind(t, "Create of what the other disk has not", err, fault.Exhausted)
	wantReason(t, "Create of what the other disk has not", err, fault.PoolFull)
	mustCreate(t, p, "large", rest)
}

// A group whose description is full takes no volume more, and says so before LVM does.
func TestGroupPoolHasRoomForItsDescription(t *testing.T) {
	host, p := groupPool(t)
	host.Groups()[0].FreeMetadata = 8 << 10
	if free, err := p.Free(t.Context()); free != 0 || err != nil {
		t.Errorf("Free = %d, %v, want 0", free, err)
	}
	_, err := p.Create(t.Context(), pool.NewVolume{Name: "a", Size: 16 << 20})
	wantKind(t, "Create", err, fault.Exhausted)
}

// Snapshots and clones are refused with a reason, and leave nothing behind.
func TestGroupPoolHasNoCopies(t *testing.T) {
	host, p := groupPool(t)
	vol := mustCreate(t, p, "a", 16<<20)
	_, err := p.CreateSnapshot(t.Context(), pool.NewSnapshot{Name: "s", Volume: vol.ID})
	wantKind(t, "CreateSnapshot", err, fault.InvalidArgument)
	wantReason(t, "CreateSnapshot", err, fault.NoCopies)
	_, err = p.Create(t.Context(), pool.NewVolume{Name: "b", Size: 16 << 20, From: pool.From{Volume: vol.ID}})
	wantKind(t, "a clone", err, fault.InvalidArgument)
	err = p.ReadBlocks(t.Context(), pool.BlocksRequest{Target: pool.NewID()}, nil)
	wantKind(t, "ReadBlocks", err, fault.Precondition)
	wantReason(t, "ReadBlocks", err, fault.NoCopies)
	if n := len(host.Groups()[0].Volumes); n != 1 {
		t.Errorf("%d logical volumes, want one", n)
	}
}

func TestGroupPoolsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(h *lvm.Host, cfg *pool.Config)
		want   fault.Kind
	}{
		"no volume group":  {func(h *lvm.Host, _ *pool.Config) { h.Set() }, fault.Precondition},
		"two of this name": {func(h *lvm.Host, _ *pool.Config) { h.Add("vg", gib) }, fault.Precondition},
		"no devices file":  {func(_ *lvm.Host, cfg *pool.Config) { cfg.LVMDir = t.TempDir() }, fault.Precondition},
		"another node's": {func(h *lvm.Host, _ *pool.Config) {
			h.Groups()[0].Tags = []string{"cloudblock-node=n2", "cloudblock-pool=default"}
		}, fault.Precondition},
		"of another name": {func(h *lvm.Host, _ *pool.Config) {
			h.Groups()[0].Tags = []string{"cloudblock-node=n1", "cloudblock-pool=fast"}
		}, fault.Precondition},
		"volumes and no tag": {func(h *lvm.Host, _ *pool.Config) {
			h.Groups()[0].Volumes = []*lvm.Volume{{Name: VolumeName(pool.NewID()), UUID: "f-1", Extents: []int{1}}}
		}, fault.Precondition},
		"no pool in a group":  {func(_ *lvm.Host, cfg *pool.Config) { cfg.MustExist = true }, fault.Precondition},
		"extents of 384 KiB":  {func(h *lvm.Host, _ *pool.Config) { h.Groups()[0].Extent = 384 << 10 }, fault.Precondition},
		"a thin pool":         {func(_ *lvm.Host, cfg *pool.Config) { cfg.Dir = "lvm:vg/thin" }, fault.InvalidArgument},
		"a name with a quote": {func(_ *lvm.Host, cfg *pool.Config) { cfg.Dir = `lvm:vg"` }, fault.InvalidArgument},
		"an option as a name": {func(_ *lvm.Host, cfg *pool.Config) { cfg.Dir = "lvm:-vg" }, fault.InvalidArgument},
		"no program":          {func(_ *lvm.Host, cfg *pool.Config) { cfg.LVM = nil }, fault.Precondition},
	} {
		t.Run(name, func(t *testing.T) {
			host := lvm.New(gib)
			cfg := host.Config(t)
			t.Setenv("PATH", t.TempDir())
			c.change(host, &cfg)
			before := fmt.Sprint(host.Groups())
			_, err := Open(t.Context(), cfg)
			wantKind(t, "open", err, c.want)
			if after := fmt.Sprint(host.Groups()); after != before {
				t.Errorf("the volume groups have changed: %s, before %s", after, before)
			}
		})
	}
}

// L11: the refusal of a pool without a devices file names the command that makes one.
func TestGroupPoolNeedsADevicesFile(t *testing.T) {
	cfg := lvm.New(gib).Config(t)
	cfg.LVMDir = t.TempDir()
	_, err := Open(t.Context(), cfg)
	wantReason(t, "open", err, fault.PoolUnusable)
	if !errors.Is(err, pool.ErrNotHere) || !strings.Contains(err.Error(), "lvm lvmdevices --devicesfile cloudblock-vg --adddev DISK") {
		t.Errorf("open = %v", err)
	}
}

// L11: another volume group of the same name is another pool.
func TestGroupPoolIsTheOneThatItWas(t *testing.T) {
	host := lvm.New(gib)
	cfg := host.Config(t)
	p := openPool(t, cfg)
	vol := mustCreate(t, p, "a", 16<<20)
	openPool(t, cfg)

	other := lvm.New(gib)
	other.Groups()[0].UUID = other.Add("spare", gib).UUID
	host.Set(other.Groups()[0])
	wantKind(t, "Delete in the other volume group", p.Delete(t.Context(), vol.ID), fault.Precondition)
	wantKind(t, "Check", p.Check(t.Context()), fault.Precondition)
	host.Set()
	_, err := Open(t.Context(), cfg)
	if wantKind(t, "open none", err, fault.Precondition); errors.Is(err, pool.ErrNotHere) {
		t.Errorf("open none = %v, and its devices file is there", err)
	}
}

func TestGroupPoolLeavesForeignVolumesAlone(t *testing.T) {
	host, p := groupPool(t)
	id := pool.NewID()
	foreign := []*lvm.Volume{
		{Name: "data", UUID: "f-1", Extents: []int{10}, Tags: []string{creatingTag}, Suspended: true},
		{Name: "cloudblock-data", UUID: "f-2", Extents: []int{11}, Tags: []string{creatingTag}},
		{Name: "cloudblock-" + string(id), UUID: "f-3", Extents: []int{12}},
	}
	group := host.Groups()[0]
	group.Volumes = append(group.Volumes, foreign...)
	mustCreate(t, p, "a", 16<<20)
	entries, err := p.List(t.Context())
	must(t, err)
	if len(entries) != 2 {
		t.Errorf("List = %+v, want the volume and what has the name of one", entries)
	}
	wantKind(t, "Delete of what has no record", p.Delete(t.Context(), id), fault.Precondition)
	for _, v := range foreign {
		if host.Volume(v.Name) != v || v.Name == "data" && !v.Suspended {
			t.Errorf("%s was touched", v.Name)
		}
	}
	must(t, p.Remove(t.Context(), id)) // by an operator
	if host.Volume(foreign[2].Name) != nil {
		t.Error("Remove has not removed it")
	}
}

// A missing disk stops the volumes on it, and no others.
func TestGroupPoolWithoutOneOfItsDisks(t *testing.T) {
	host, p := groupPool(t)
	there, lost := mustCreate(t, p, "there", 16<<20), mustCreate(t, p, "lost", 16<<20)
	must(t, p.MarkWritten(t.Context(), there.ID))
	must(t, p.Activate(t.Context(), lost.ID))
	host.Groups()[0].Missing = 1
	host.Volume(p.FileName(lost.ID)).Health = "partial"
	must(t, p.Activate(t.Context(), there.ID))
	must(t, p.Deactivate(t.Context(), there.ID))
	must(t, p.Deactivate(t.Context(), lost.ID))
	wantKind(t, "Activate without the disk", p.Activate(t.Context(), lost.ID), fault.Precondition)
	wantKind(t, "Check", p.Check(t.Context()), fault.Precondition)
	if free, err := p.Free(t.Context()); free != 0 || err != nil {
		t.Errorf("Free = %d, %v, want 0", free, err)
	}
	_, err := p.Create(t.Context(), pool.NewVolume{Name: "new", Size: 16 << 20})
	wantKind(t, "Create", err, fault.Exhausted) // another node may have space
	wantReason(t, "Create", err, fault.PoolUnusable)
}

// Examine refuses a volume group for what Open would refuse it for, and gives it no tag.
func TestExamineOfAGroup(t *testing.T) {
	host := lvm.New(gib)
	cfg := host.Config(t)
	examined := func(what string, cfg pool.Config, want error) {
		t.Helper()
		if err := Examine(cfg); !errors.Is(err, want) {
			t.Errorf("%s: Examine = %v, want %v", what, err, want)
		}
	}
	examined("a new pool", cfg, nil)
	second := cfg
	second.Node = "n2"
	if p := openPool(t, second); p.Node() != "n2" {
		t.Errorf("Examine gave the pool to node %q", p.Node())
	}
	examined("the pool of another node", cfg, fault.PoolUnusable)
	absent := cfg
	absent.LVMDir = t.TempDir()
	examined("no devices file", absent, pool.ErrNotHere)
	gone := second
	gone.Name = "fast"
	examined("a pool of another name", gone, fault.PoolUnusable)
	host.Groups()[0].Tags = nil
	openPool(t, gone)
	host.Groups()[0].Missing = 1
	examined("a pool without one of its disks", gone, fault.PoolUnusable)
	host.Set()
	examined("a pool that has gone", gone, fault.PoolUnusable)
}
