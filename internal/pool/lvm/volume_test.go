package lvm

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/lvm"
)

func TestGroupSizesAreWholeExtents(t *testing.T) {
	host := lvm.New(gib)
	host.Groups()[0].Extent = 32 << 20
	p := openPool(t, host.Config(t))
	if r := mustCreate(t, p, "a", 33<<20); r.Size != 64<<20 {
		t.Errorf("the volume has %d bytes, want two extents", r.Size)
	}
	_, err := p.Create(t.Context(), pool.NewVolume{Name: "b", Size: 33 << 20, Limit: 40 << 20})
	wantKind(t, "Create with a limit between two extents", err, fault.OutOfRange)
	host.Groups()[0].Extent = 7 << 20
	_, err = p.Create(t.Context(), pool.NewVolume{Name: "largest", Size: pool.LargestVolume})
	wantKind(t, "Create of the largest volume, which is not of whole extents", err, fault.OutOfRange)
}

// L13: nobody sees what another had: all of a volume reads as zeros before anybody has its id, and all of a growth
// before the volume's device has it.
func TestGroupVolumesReadAsZeros(t *testing.T) {
	host, p := groupPool(t)
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

func TestGroupVolumeInUse(t *testing.T) {
	host, p := groupPool(t)
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
	host, p := groupPool(t)
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
	host, p := groupPool(t)
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
	host, p := groupPool(t)
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
	host, p := groupPool(t)
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

func TestGroupRecordsKeepWhatTheyAreGiven(t *testing.T) {
	host := lvm.New(gib)
	cfg := host.Config(t)
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
