package lvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/lvm"
)

var must, wantKind, wantReason = expect.NoError, expect.Kind, expect.Reason

const gib = int64(1) << 30

// groupConfig is that of the pool vg of a host, which has a devices file.
func configOf(t *testing.T, host pool.LVM) pool.Config {
	t.Helper()
	cfg := pool.Config{Dir: "lvm:vg", Node: "n1", LockDir: t.TempDir(), LVMDir: t.TempDir(), LVM: host}
	must(t, os.Mkdir(filepath.Join(cfg.LVMDir, "devices"), 0o755))
	must(t, os.WriteFile(filepath.Join(cfg.LVMDir, "devices", "cloudblock-vg"), nil, 0o644))
	return cfg
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
	host := lvm.New(gib)
	p := openPool(t, configOf(t, host))
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

// A group whose description is full takes no volume more, and says so before LVM does.
func TestGroupPoolHasRoomForItsDescription(t *testing.T) {
	host := lvm.New(gib)
	p := openPool(t, configOf(t, host))
	host.Groups()[0].FreeMetadata = 8 << 10
	if free, err := p.Free(t.Context()); free != 0 || err != nil {
		t.Errorf("Free = %d, %v, want 0", free, err)
	}
	_, err := p.Create(t.Context(), pool.NewVolume{Name: "a", Size: 16 << 20})
	wantKind(t, "Create", err, fault.Exhausted)
}

func TestGroupSizesAreWholeExtents(t *testing.T) {
	host := lvm.New(gib)
	host.Groups()[0].Extent = 32 << 20
	p := openPool(t, configOf(t, host))
	if r := mustCreate(t, p, "a", 33<<20); r.Size != 64<<20 {
		t.Errorf("the volume has %d bytes, want two extents", r.Size)
	}
	_, err := p.Create(t.Context(), pool.NewVolume{Name: "b", Size: 33 << 20, Limit: 40 << 20})
	wantKind(t, "Create with a limit between two extents", err, fault.OutOfRange)
	host.Groups()[0].Extent = 7 << 20
	_, err = p.Create(t.Context(), pool.NewVolume{Name: "largest", Size: pool.LargestVolume})
	wantKind(t, "Create of the largest volume, which is not of whole extents", err, fault.OutOfRange)
}

// Snapshots and clones are refused with a reason, and leave nothing behind.
func TestGroupPoolHasNoCopies(t *testing.T) {
	host := lvm.New(gib)
	p := openPool(t, configOf(t, host))
	vol := mustCreate(t, p, "a", 16<<20)
	_, err := p.CreateSnapshot(t.Context(), pool.NewSnapshot{Name: "s", Volume: vol.ID})
	wantKind(t, "CreateSnapshot", err, fault.InvalidArgument)
	if fault.ReasonOf(err) != fault.NoCopies {
		t.Errorf("CreateSnapshot = %v, want the reason %s", err, fault.NoCopies)
	}
	_, err = p.Create(t.Context(), pool.NewVolume{Name: "b", Size: 16 << 20, From: pool.From{Volume: vol.ID}})
	wantKind(t, "a clone", err, fault.InvalidArgument)
	err = p.ReadBlocks(t.Context(), pool.BlocksRequest{Target: pool.NewID()}, nil)
	wantKind(t, "ReadBlocks", err, fault.Precondition)
	if fault.ReasonOf(err) != fault.NoCopies {
		t.Errorf("ReadBlocks = %v, want the reason %s", err, fault.NoCopies)
	}
	if n := len(host.Groups()[0].Volumes); n != 1 {
		t.Errorf("%d logical volumes, want one", n)
	}
}

// L13: nobody sees what another had: all of a volume reads as zeros before anybody has its id, and all of a growth
// before the volume's device has it.
func TestGroupVolumesReadAsZeros(t *testing.T) {
	host := lvm.New(gib)
	p := openPool(t, configOf(t, host))
	vol := mustCreate(t, p, "a", 600<<20)
	lv := host.Volume(p.FileName(vol.ID))
	if host.Shows(lv) {
		t.Error("a new volume shows what was there before")
	}
	if never, err := p.NeverWritten(t.Context(), vol.ID); !never || err != nil {
		t.Errorf("NeverWritten of a new volume = %t, %v", never, err)
	}
	lv.Extents = append(lv.Extents, len(host.Groups()[0].Dirty)-1) // by an operator's lvextend
	if never, err := p.NeverWritten(t.Context(), vol.ID); never || err != nil {
		t.Errorf("NeverWritten of a volume that has grown = %t, %v", never, err)
	}
	lv.Extents = lv.Extents[:len(lv.Extents)-1]
	must(t, p.Activate(t.Context(), vol.ID))
	lv.Open = true // mounted
	host.Hook = func(args []string) {
		if host.Shows(lv) {
			t.Errorf("before %q the volume shows what was there before", args)
		}
	}
	if got, err := p.Grow(t.Context(), vol.ID, 900<<20); got != 900<<20 || err != nil {
		t.Errorf("Grow = %d, %v", got, err)
	}
	if host.Shows(lv) || int64(len(lv.Extents))*4<<20 != 900<<20 {
		t.Errorf("after the growth the volume has %d extents, and shows what was there: %t", len(lv.Extents), host.Shows(lv))
	}
	host.Hook = nil
	for range 2 {
		must(t, p.MarkWritten(t.Context(), vol.ID))
	}
	if never, err := p.NeverWritten(t.Context(), vol.ID); never || err != nil {
		t.Errorf("NeverWritten of a volume that is about to be written = %t, %v", never, err)
	}
	lv.Open = false
	must(t, p.Deactivate(t.Context(), vol.ID))
	host.Write(lv)
	must(t, p.Delete(t.Context(), vol.ID))
	if host.Shows(host.Volume(p.FileName(mustCreate(t, p, "b", 900<<20).ID))) {
		t.Error("a volume shows what a deleted one had")
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
			cfg := configOf(t, host)
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
	cfg := configOf(t, lvm.New(gib))
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
	cfg := configOf(t, host)
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
	host := lvm.New(gib)
	p := openPool(t, configOf(t, host))
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

func TestGroupVolumeInUse(t *testing.T) {
	host := lvm.New(gib)
	p := openPool(t, configOf(t, host))
	vol := mustCreate(t, p, "a", 16<<20)
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
	lv.Open = false
	for range 2 {
		must(t, p.Deactivate(t.Context(), vol.ID))
	}
	must(t, p.Delete(t.Context(), vol.ID))
	must(t, p.Deactivate(t.Context(), vol.ID))
	wantKind(t, "Activate of nothing", p.Activate(t.Context(), vol.ID), fault.NotFound)
}

// L12: what a killed command has left suspended is resumed by whatever call comes next, and what it has loaded and not
// committed never comes to life: its extents may be another volume's. Where that cannot be mended, other volumes are
// served.
func TestGroupVolumeThatWasLeftSuspended(t *testing.T) {
	host := lvm.New(gib)
	p := openPool(t, configOf(t, host))
	vol, other := mustCreate(t, p, "a", 16<<20), mustCreate(t, p, "b", 16<<20)
	must(t, p.Activate(t.Context(), vol.ID))
	lv := host.Volume(p.FileName(vol.ID))
	host.Hook = func([]string) {
		if len(lv.Live) > len(lv.Extents) {
			t.Error("the table of a growth that was not committed is live")
		}
	}
	for _, loaded := range [][]int{nil, {1, 2, 3, 4, 5, 6, 7, 8}} {
		for _, suspended := range []bool{true, false} {
			lv.Suspended, lv.Loaded = suspended, loaded
			if _, err := p.Free(t.Context()); err != nil || lv.Suspended || lv.Loaded != nil || !slices.Equal(lv.Live, lv.Extents) {
				t.Errorf("after Free = %v: %+v", err, lv)
			}
		}
	}
	lv.Suspended, lv.Health = true, "partial"
	must(t, p.Activate(t.Context(), other.ID))
	must(t, p.Deactivate(t.Context(), other.ID))
	wantKind(t, "Activate", p.Activate(t.Context(), vol.ID), fault.Precondition)
	if err := p.Deactivate(t.Context(), vol.ID); err == nil || !lv.Active {
		t.Errorf("Deactivate = %v", err)
	}
}

// A look costs as much with many volumes as with none.
func TestGroupVolumesAtRestAreLeftAlone(t *testing.T) {
	host := lvm.New(gib)
	p := openPool(t, configOf(t, host))
	for n := range 4 {
		mustCreate(t, p, strconv.Itoa(n), 16<<20)
	}
	var commands []string
	host.Hook = func(args []string) { commands = append(commands, args[0]) }
	_, err := p.Free(t.Context())
	must(t, err)
	if !slices.Equal(commands, []string{"vgs", "lvs"}) {
		t.Errorf("the commands were %q", commands)
	}
}

// What an operator has made of a volume goes neither with its delete nor in its growth.
func TestGroupVolumeWithASnapshotOfAnOperator(t *testing.T) {
	host := lvm.New(gib)
	p := openPool(t, configOf(t, host))
	vol := mustCreate(t, p, "a", 16<<20)
	host.Volume(p.FileName(vol.ID)).Role = "public,origin,thickorigin"
	before := len(host.Groups()[0].Volumes)
	wantKind(t, "Delete", p.Delete(t.Context(), vol.ID), fault.Precondition)
	wantKind(t, "Remove", p.Remove(t.Context(), vol.ID), fault.Precondition)
	_, err := p.Grow(t.Context(), vol.ID, 32<<20)
	wantKind(t, "Grow", err, fault.Precondition)
	if got := len(host.Groups()[0].Volumes); got != before {
		t.Errorf("%d logical volumes, want %d", got, before)
	}
	must(t, p.Activate(t.Context(), vol.ID))
}

// The space of a growth whose volume somebody has removed is in the list, and can be deleted.
func TestGroupGrowthWithoutItsVolume(t *testing.T) {
	host := lvm.New(gib)
	p := openPool(t, configOf(t, host))
	id, other := pool.NewID(), pool.NewID()
	group := host.Groups()[0]
	group.Volumes = append(group.Volumes,
		&lvm.Volume{Name: growthName(id), UUID: "g-1", Extents: []int{1}, Tags: []string{creatingTag}},
		&lvm.Volume{Name: growthName(other), UUID: "g-2", Extents: []int{2}, Tags: []string{creatingTag}, Active: true, Open: true})
	entries, err := p.List(t.Context())
	must(t, err)
	if len(entries) != 2 || entries[0].Kind != pool.NoRecord {
		t.Errorf("List = %+v", entries)
	}
	must(t, p.Remove(t.Context(), id))
	wantKind(t, "Remove while it is open", p.Remove(t.Context(), other), fault.Busy)
	if len(group.Volumes) != 1 {
		t.Errorf("%d logical volumes, want one", len(group.Volumes))
	}
}

// A missing disk stops the volumes on it, and no others.
func TestGroupPoolWithoutOneOfItsDisks(t *testing.T) {
	host := lvm.New(gib)
	p := openPool(t, configOf(t, host))
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

func TestGroupRecordsKeepWhatTheyAreGiven(t *testing.T) {
	host := lvm.New(gib)
	cfg := configOf(t, host)
	p := openPool(t, cfg)
	tags := []pool.Pair{{Name: "a~b+c:d", Value: ""}, {Name: "claim", Value: "twice"}, {Name: "claim", Value: "ä b,c=\"d\"\n"}, {Name: "long", Value: strings.Repeat("x", 900)}}
	want, err := p.Create(t.Context(), pool.NewVolume{Name: "näme, with a comma: 100 %", Size: 16 << 20, Tags: tags})
	must(t, err)
	got, err := openPool(t, cfg).Get(t.Context(), want.ID)
	must(t, err)
	if !reflect.DeepEqual(got.Record, want) || got.Kind != pool.Whole {
		t.Errorf("Get = %+v, want %+v", got, want)
	}
	lv := host.Volume(p.FileName(want.ID))
	allowed := regexp.MustCompile(`^[a-zA-Z0-9_+./=!:&#-]+$`)
	for _, tag := range lv.Tags {
		if len(tag) > 1024 || !allowed.MatchString(tag) {
			t.Errorf("LVM would refuse the tag %q", tag)
		}
	}
	plain, err := p.Create(t.Context(), pool.NewVolume{Name: "pvc-1", Size: 16 << 20, Tags: []pool.Pair{{Name: "cloudblock-pvc", Value: "data.0"}}})
	must(t, err)
	if has := host.Volume(p.FileName(plain.ID)).Tags; !slices.Contains(has, "cloudblock-name=pvc-1") || !slices.Contains(has, "cloudblock-tag=cloudblock-pvc:data.0") {
		t.Errorf("the tags are %q, want them plain", has)
	}
	for what, tags := range map[string][]pool.Pair{
		"a tag that is too long": {{Name: "long", Value: strings.Repeat("x", 1024)}},
		"too many tags":          slices.Repeat([]pool.Pair{{Name: "long", Value: strings.Repeat("x", 900)}}, 40),
	} {
		_, err = p.Create(t.Context(), pool.NewVolume{Name: "b", Size: 16 << 20, Tags: tags})
		wantKind(t, "Create with "+what, err, fault.InvalidArgument)
	}
	lv.Tags = append(lv.Tags, "cloudblock-tag=a:+zz")
	if got, err = p.Get(t.Context(), want.ID); err != nil || got.Kind != pool.Damaged {
		t.Errorf("Get with a tag that says nothing = %+v, %v, want damaged", got, err)
	}
	lv.Tags = slices.DeleteFunc(lv.Tags, func(tag string) bool { return strings.HasPrefix(tag, "cloudblock-name=") })
	lv.Tags = lv.Tags[:len(lv.Tags)-1]
	if got, err = p.Get(t.Context(), want.ID); err != nil || got.Kind != pool.NoRecord {
		t.Errorf("Get without its name = %+v, %v, want no record", got, err)
	}
	wantKind(t, "Delete of a volume without its name", p.Delete(t.Context(), want.ID), fault.Precondition)
}

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
		cfg := configOf(t, host)
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
	cfg := configOf(t, host)
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

// A volume group on a disk that does not answer stops no caller for longer than it has patience.
func TestGroupPoolOnADiskThatHangs(t *testing.T) {
	host := lvm.New(gib)
	cfg := configOf(t, host)
	hang := make(chan struct{})
	stuck := make(chan struct{}, 8)
	host.Hook = func(args []string) {
		if args[0] == "lvcreate" {
			stuck <- struct{}{}
			<-hang
		}
	}
	p := openPool(t, cfg)
	ctx, cancel := contextUntil(t, stuck)
	defer cancel()
	_, err := p.Create(ctx, pool.NewVolume{Name: "a", Size: 16 << 20})
	wantKind(t, "Create", err, fault.Uncertain)
	close(hang)
	if e, err := p.FindByName(t.Context(), "a"); err != nil || e.Size != 16<<20 {
		t.Errorf("find = %+v, %v, want the volume when the command has ended", e, err)
	}
	must(t, p.Close(t.Context()))
}

// L9: without the lock, too: the calls that a hanging command stops wait as long as they last, and begin no other.
func TestGroupPoolWhoseReadHangs(t *testing.T) {
	host := lvm.New(gib)
	var hangs atomic.Bool
	var begun atomic.Int32
	hang := make(chan struct{})
	host.Hook = func(args []string) {
		if hangs.Load() && args[0] == "vgs" {
			begun.Add(1)
			<-hang
		}
	}
	p := openPool(t, configOf(t, host))
	hangs.Store(true)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		wantKind(t, "Check", p.Check(ctx), fault.Uncertain)
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

// Examine refuses a volume group for what Open would refuse it for, and gives it no tag.
func TestExamineOfAGroup(t *testing.T) {
	host := lvm.New(gib)
	cfg := configOf(t, host)
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
