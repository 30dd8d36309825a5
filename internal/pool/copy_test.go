package pool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// copyPool is a pool that copies, whatever the filesystem of temporary files can.
func copyPool(t *testing.T, dir string) *Pool {
	t.Helper()
	p := openPool(t, dir)
	p.reflink = false
	t.Cleanup(func() { must(t, p.Close(context.Background())) })
	return p
}

// atStep blocks the pool at the first step of this name until resume is called.
func atStep(t *testing.T, p *Pool, name string) (reached <-chan struct{}, resume func()) {
	t.Helper()
	at, on := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p.disk.before = func(step string) {
		if step == name {
			once.Do(func() { close(at); <-on })
		}
	}
	resume = sync.OnceFunc(func() { close(on) })
	t.Cleanup(resume) // before the pool's own, which waits for the copy
	return at, resume
}

func TestCopyOutlivesItsCallerAndIsJoined(t *testing.T) {
	dir := t.TempDir()
	p, other := copyPool(t, dir), copyPool(t, dir)
	a := mustCreate(t, p, "a", small)
	fillVolume(t, p, a.ID, 'a')
	reached, resume := atStep(t, p, "copy")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-reached; cancel() }()
	req := NewSnapshot{Name: "s", Volume: a.ID}
	_, err := p.CreateSnapshot(ctx, req)
	if !errors.Is(err, fault.Uncertain) || !errors.Is(err, context.Canceled) {
		t.Errorf("CreateSnapshot whose caller went away = %v, want %v", err, fault.Uncertain)
	}
	// Another process detects the live copy and changes nothing.
	entries, err := other.ListSnapshots(t.Context())
	if err != nil || len(entries) != 1 || entries[0].Kind != UnderWay {
		t.Fatalf("ListSnapshots in the middle = %+v, %v, want %q", entries, err, UnderWay)
	}
	for name, err := range map[string]error{
		"delete of the half-made snapshot": other.DeleteSnapshot(t.Context(), entries[0].ID),
		"delete of its source":             other.Delete(t.Context(), a.ID),
		"attach of its source":             other.Use(t.Context(), a.ID, func(*os.File, Record) error { return nil }),
	} {
		wantKind(t, name, err, fault.Busy)
	}
	_, err = other.Create(t.Context(), NewVolume{Name: "c", Size: small, From: From{Snapshot: entries[0].ID}})
	wantKind(t, "restore of the half-made snapshot", err, fault.Busy)
	_, err = p.CreateSnapshot(t.Context(), req)
	wantKind(t, "the same call again", err, fault.Conflict)
	brief, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	if _, err := other.FindSnapshot(brief, "s"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("FindSnapshot in the middle = %v, want to wait", err)
	}
	resume()
	found, err := other.FindSnapshot(t.Context(), "s")
	if err != nil || found.Kind != Whole || found.ID != entries[0].ID {
		t.Errorf("FindSnapshot = %+v, %v, want it complete", found, err)
	}
	must(t, p.Use(t.Context(), a.ID, func(*os.File, Record) error { return nil }))
}

func TestCopyIsBrokenOffWithThePool(t *testing.T) {
	p := copyPool(t, t.TempDir())
	a := mustCreate(t, p, "a", small)
	fillVolume(t, p, a.ID, 'a')
	free, err := p.Free(t.Context())
	must(t, err)
	reached, resume := atStep(t, p, "copy")
	answer := make(chan error, 1)
	go func() {
		_, err := p.Create(context.Background(), NewVolume{Name: "c", Size: 2 * small, From: From{Volume: a.ID}})
		answer <- err
	}()
	<-reached
	p.cancelCopies()
	resume()
	must(t, p.Close(t.Context()))
	if err := <-answer; err == nil {
		t.Error("the copy was made although the pool was closed")
	}
	if left := files(t, p); len(left) != 2 {
		t.Errorf("the pool holds %q, want only the source", left)
	}
	if now, err := p.Free(t.Context()); err != nil || now != free {
		t.Errorf("Free = %d, %v, want %d", now, err, free)
	}
}

// Somebody clears the folder up by hand while a copy is made.
func TestACopyThatWasRemovedMeanwhileIsNotToldOf(t *testing.T) {
	p := copyPool(t, t.TempDir())
	a := mustCreate(t, p, "a", small)
	fillVolume(t, p, a.ID, 'a')
	p.disk.before = func(step string) {
		if step != "copy" {
			return
		}
		images, err := filepath.Glob(p.path(string(volumes), "*"+imageExt))
		for _, f := range images {
			if f != p.ImagePath(a.ID) {
				err = errors.Join(err, os.Remove(f))
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
	if r, err := p.Create(t.Context(), NewVolume{Name: "b", Size: small, From: From{Volume: a.ID}}); fault.Of(err) != fault.Unavailable {
		t.Errorf("Create = %+v, %v, want %v", r, err, fault.Unavailable)
	}
	if left := files(t, p); len(left) != 2 {
		t.Errorf("the pool holds %q, want only the source", left)
	}
}

// A copy takes its time, so a volume in use is refused at once, and the answer names the ways out.
func TestCopyOfAVolumeInUseIsRefused(t *testing.T) {
	p := copyPool(t, t.TempDir())
	a := mustCreate(t, p, "a", small)
	fillVolume(t, p, a.ID, 'a')
	release := hold(t, p, a.ID)
	_, err := p.CreateSnapshot(t.Context(), NewSnapshot{Name: "s", Volume: a.ID})
	wantKind(t, "CreateSnapshot of a volume in use", err, fault.Precondition)
	wantReason(t, "CreateSnapshot of a volume in use", err, fault.SourceInUse)
	for _, way := range []string{"stop the pod", "xfs", p.Handle(a.ID).String()} {
		if err == nil || !strings.Contains(err.Error(), way) {
			t.Errorf("CreateSnapshot of a volume in use = %v, want %q in it", err, way)
		}
	}
	_, err = p.Create(t.Context(), NewVolume{Name: "c", Size: small, From: From{Volume: a.ID}})
	wantKind(t, "a clone of a volume in use", err, fault.Precondition)
	if left := files(t, p); len(left) != 2 {
		t.Errorf("the pool holds %q, want only the volume", left)
	}
	release()
	if _, err := p.CreateSnapshot(t.Context(), NewSnapshot{Name: "s", Volume: a.ID}); err != nil {
		t.Errorf("CreateSnapshot of the volume after its use = %v", err)
	}
}

func TestRestoreHasTheContentAndTheSize(t *testing.T) {
	p := copyPool(t, t.TempDir())
	a := mustCreate(t, p, "a", small)
	fillVolume(t, p, a.ID, 'a')
	want, err := os.ReadFile(p.ImagePath(a.ID))
	must(t, err)
	made, err := p.CreateSnapshot(t.Context(), NewSnapshot{Name: "s", Volume: a.ID})
	must(t, err)
	fillVolume(t, p, a.ID, 'b')
	must(t, p.Delete(t.Context(), a.ID)) // a snapshot does not need its volume
	for _, size := range []int64{small, 3 * small} {
		r, err := p.Create(t.Context(), NewVolume{Name: "r" + string(rune('0'+size/small)), Size: size, From: From{Snapshot: made.ID}})
		must(t, err)
		e, err := p.Get(t.Context(), r.ID)
		if err != nil || e.Size != size || e.Allocated < size || r.SourceOf() != (From{Snapshot: made.ID}) {
			t.Errorf("restore to %d = %+v, %v", size, e, err)
		}
		data, err := os.ReadFile(p.ImagePath(r.ID))
		if err != nil || string(data[:small]) != string(want) || strings.Trim(string(data[small:]), "\x00") != "" {
			t.Errorf("the restored volume does not have the content of the snapshot (%d bytes, %v)", len(data), err)
		}
		must(t, p.Delete(t.Context(), r.ID))
	}
	big, err := p.Create(t.Context(), NewVolume{Name: "big", Size: 2 * small})
	must(t, err)
	_, err = p.Create(t.Context(), NewVolume{Name: "less", Size: small, From: From{Volume: big.ID}})
	wantKind(t, "a clone smaller than its source", err, fault.OutOfRange)
	_, err = p.Create(t.Context(), NewVolume{Name: "of nothing", Size: small, From: From{Snapshot: NewID()}})
	wantKind(t, "a restore of nothing", err, fault.NotFound)
	_, err = p.Create(t.Context(), NewVolume{Name: "huge", Size: 21 * small, From: From{Volume: big.ID}})
	wantKind(t, "a clone without space", err, fault.Exhausted)
	wantReason(t, "a clone without space", err, fault.PoolFull)
}

// C14: whatever is lost of a snapshot, what is there stays until it is removed by name.
func TestOrphansOfSnapshotsAreKept(t *testing.T) {
	dir := t.TempDir()
	p := copyPool(t, dir)
	a := mustCreate(t, p, "a", small)
	var ids []ID
	for _, name := range []string{"record gone", "image gone", "record cut off", "image cut off"} {
		made, err := p.CreateSnapshot(t.Context(), NewSnapshot{Name: name, Volume: a.ID})
		must(t, err)
		ids = append(ids, made.ID)
	}
	must(t, os.Remove(p.file(snapshotRef(ids[0]), recordExt)))
	must(t, os.Remove(p.file(snapshotRef(ids[1]), imageExt)))
	must(t, os.Truncate(p.file(snapshotRef(ids[2]), recordExt), 9))
	must(t, os.Truncate(p.file(snapshotRef(ids[3]), imageExt), small-1))
	before := files(t, p)
	p = copyPool(t, dir)
	must(t, p.Delete(t.Context(), a.ID))
	for i, want := range []Kind{NoRecord, NoImage, Damaged, Damaged} {
		if e, err := p.GetSnapshot(t.Context(), ids[i]); err != nil || e.Kind != want || e.Problem == "" {
			t.Errorf("GetSnapshot = %+v, %v, want %q", e, err, want)
		}
	}
	if after := files(t, p); len(after) != len(before)-2 {
		t.Errorf("the pool held %q, now %q", before, after)
	}
	for _, id := range ids {
		must(t, p.RemoveSnapshot(t.Context(), id))
	}
	if left := files(t, p); len(left) > 0 {
		t.Errorf("the pool holds %q", left)
	}
}

// A pool that an older version served opens with all its snapshots, whatever that one left behind of a
// freeze, and what a record said of a group or a freeze means nothing any more.
func TestAPoolOfAnOlderVersion(t *testing.T) {
	dir := t.TempDir()
	p := copyPool(t, dir)
	a := mustCreate(t, p, "a", small)
	made, err := p.CreateSnapshot(t.Context(), NewSnapshot{Name: "s", Volume: a.ID})
	must(t, err)
	record := p.file(snapshotRef(made.ID), recordExt)
	data, err := os.ReadFile(record)
	must(t, err)
	older := strings.Replace(string(data), `"state"`, `"group":"`+string(NewID())+`","frozen":true,"state"`, 1)
	must(t, os.WriteFile(record, []byte(older), filePerm))
	must(t, os.Mkdir(p.path("freeze"), folderPerm))
	for _, note := range []string{"", ".json", ".frozen", ".freezing"} {
		must(t, os.WriteFile(p.path("freeze", string(a.ID)+note), []byte(`{"format":1}`), filePerm))
	}
	p = copyPool(t, dir)
	if e, err := p.FindSnapshot(t.Context(), "s"); err != nil || e.Kind != Whole || e.Record.Volume != a.ID {
		t.Errorf("FindSnapshot = %+v, %v, want the older snapshot", e, err)
	}
	if _, err := p.Create(t.Context(), NewVolume{Name: "r", Size: small, From: From{Snapshot: made.ID}}); err != nil {
		t.Errorf("Create from the older snapshot = %v", err)
	}
	must(t, p.DeleteSnapshot(t.Context(), made.ID))
	must(t, p.Delete(t.Context(), a.ID))
}

func TestNeededCopies(t *testing.T) {
	at := func(start, length int64) mapped { return mapped{extent{0, length}, start, fiemapShared} }
	type use struct {
		mapped
		volumes, snapshots int64
	}
	for name, tc := range map[string]struct {
		uses []use
		want int64
	}{
		"nothing is shared":                      {nil, 0},
		"a volume by itself":                     {[]use{{at(0, 10), 1, 0}}, 0},
		"two volumes: the last writer keeps it":  {[]use{{at(0, 10), 1, 0}, {at(0, 10), 1, 0}}, 10},
		"a volume and a snapshot":                {[]use{{at(0, 10), 1, 0}, {at(0, 10), 0, 1}}, 10},
		"a volume and two snapshots":             {[]use{{at(0, 10), 1, 0}, {at(0, 10), 0, 1}, {at(0, 10), 0, 1}}, 10},
		"three volumes and a snapshot":           {[]use{{at(0, 10), 3, 0}, {at(0, 10), 0, 1}}, 30},
		"snapshots only: no writer":              {[]use{{at(0, 10), 0, 1}, {at(0, 10), 0, 1}}, 0},
		"a part of an extent":                    {[]use{{at(0, 10), 1, 0}, {at(4, 3), 0, 1}}, 3},
		"extents that touch":                     {[]use{{at(0, 10), 1, 0}, {at(10, 10), 0, 1}}, 0},
		"extents that overlap, of three and two": {[]use{{at(0, 10), 1, 0}, {at(5, 10), 1, 0}, {at(8, 10), 1, 0}}, 2*2 + 3 + 5},
	} {
		t.Run(name, func(t *testing.T) {
			var boundaries []boundary
			for _, u := range tc.uses {
				boundaries = append(boundaries, boundariesOf(u.mapped, u.volumes, u.snapshots)...)
			}
			if got := neededCopies(boundaries); got != tc.want {
				t.Errorf("neededCopies = %d, want %d", got, tc.want)
			}
		})
	}
}
