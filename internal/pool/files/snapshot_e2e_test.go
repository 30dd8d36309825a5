//go:build e2e

package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// TestCutAtEverySystemCallOnEveryFilesystem is TestCutAtEverySystemCall with reflinks where there are
// some, and with every byte of a real disk accounted for.
func TestCutAtEverySystemCallOnEveryFilesystem(t *testing.T) {
	for fs := range filesystems {
		t.Run(fs, func(t *testing.T) {
			if testing.Short() && fs != "xfs" {
				t.Skip("one filesystem with -short")
			}
			t.Parallel()
			// In memory: what a killed process leaves does not depend on how long a disk takes to sync.
			dir := poolBelow(t, fs, inMemory(t)).dir
			cutEverywhere(t, cutRig{count: bookkeeper(dir), one: true, dir: func(t *testing.T) string {
				files, err := os.ReadDir(dir)
				must(t, err)
				for _, f := range files {
					must(t, os.RemoveAll(filepath.Join(dir, f.Name())))
				}
				return dir
			}})
		})
	}
}

// writeOver writes new bytes over a whole image, through the page cache and around it.
func writeOver(t *testing.T, name string, size int64, b byte) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	must(t, err)
	chunk := []byte(strings.Repeat(string(rune(b)), int(pool.SizeStep)))
	for at := int64(0); at < size; at += pool.SizeStep {
		if _, err := f.WriteAt(chunk, at); err != nil {
			t.Fatalf("write over %s at %d: %v", name, at, err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatalf("flush %s: %v", name, err)
	}
	must(t, f.Close())
}

// L3: volumes that share blocks can be overwritten in full when the pool reports that it is full, also by foreign
// programs: that is what the reservations are for.
func TestReservationsOfSharedBlocksHold(t *testing.T) {
	p := realPool(t, "xfs")
	a := mustCreate(t, p, "a", 4*small)
	writeOver(t, p.ImagePath(a.ID), a.Size, 'a')
	first, err := p.CreateSnapshot(t.Context(), pool.NewSnapshot{Name: "s1", Volume: a.ID})
	must(t, err)
	b, err := p.Create(t.Context(), pool.NewVolume{Name: "b", Size: 5 * small, From: pool.From{Snapshot: first.ID}})
	must(t, err)
	c, err := p.Create(t.Context(), pool.NewVolume{Name: "c", Size: 4 * small, From: pool.From{Volume: a.ID}})
	must(t, err)
	writeOver(t, p.ImagePath(c.ID), c.Size/2, 'c')
	_, err = p.CreateSnapshot(t.Context(), pool.NewSnapshot{Name: "s2", Volume: c.ID})
	must(t, err)

	free, err := p.Free(t.Context())
	must(t, err)
	mustCreate(t, p, "rest", free/pool.SizeStep*pool.SizeStep)
	_, err = p.CreateSnapshot(t.Context(), pool.NewSnapshot{Name: "s3", Volume: b.ID})
	wantKind(t, "a snapshot in a full pool", err, fault.Exhausted)
	for round, letter := range []byte{'x', 'y'} {
		for _, r := range []pool.Record{a, b, c} {
			writeOver(t, p.ImagePath(r.ID), r.Size, letter)
		}
		data, err := os.ReadFile(p.file(pool.SnapshotRef(first.ID), imageExt))
		if err != nil || int64(len(data)) != a.Size || strings.Trim(string(data), "a") != "" {
			t.Fatalf("round %d: the snapshot has changed: %d bytes, %v", round, len(data), err)
		}
	}
	if _, err := p.Create(t.Context(), pool.NewVolume{Name: "more", Size: small}); !errors.Is(err, fault.Exhausted) {
		t.Errorf("Create in a full pool = %v, want %v", err, fault.Exhausted)
	}
}

// L3: each snapshot counts with what was written to its volume, also the second of the same blocks, and so does each that
// is left. What its volume has only reserved does not count.
func TestEachSnapshotCounts(t *testing.T) {
	p := realPool(t, "xfs")
	a := mustCreate(t, p, "a", 4*small)
	writeOver(t, p.ImagePath(a.ID), 3*small, 'a')
	reserved := func() int64 {
		t.Helper()
		u, err := p.Usage(t.Context())
		must(t, err)
		return u.Reserved
	}
	var made []pool.Record
	for n := range int64(3) {
		if got := reserved(); got != n*3*small {
			t.Errorf("with %d snapshots %d bytes are reserved, want %d", n, got, n*3*small)
		}
		s, err := p.CreateSnapshot(t.Context(), pool.NewSnapshot{Name: fmt.Sprint("s", n), Volume: a.ID})
		must(t, err)
		made = append(made, s)
	}
	// What the volume overwrites it has for itself; the three snapshots still share one copy.
	writeOver(t, p.ImagePath(a.ID), 3*small, 'b')
	if got := reserved(); got != 2*3*small {
		t.Errorf("after the volume was overwritten %d bytes are reserved, want %d", got, 2*3*small)
	}
	must(t, p.Delete(t.Context(), a.ID))
	must(t, p.DeleteSnapshot(t.Context(), made[0].ID))
	if got := reserved(); got != 3*small {
		t.Errorf("two snapshots of one content reserve %d bytes, want %d", got, 3*small)
	}
}

// L3: a volume in use is written to between the admission of its snapshot and the clone: what is shared then counts.
func TestSnapshotOfWhatWasWrittenMeanwhile(t *testing.T) {
	p := realPool(t, "xfs")
	a := mustCreate(t, p, "a", 8*small)
	free, err := p.Free(t.Context())
	must(t, err)
	mustCreate(t, p, "rest", (free-4*small)/pool.SizeStep*pool.SizeStep)
	before := files(t, p)
	p.disk.before = func(step string) {
		if step == "clone" {
			writeOver(t, p.ImagePath(a.ID), a.Size, 'a')
		}
	}
	_, err = p.CreateSnapshot(t.Context(), pool.NewSnapshot{Name: "s", Volume: a.ID})
	wantReason(t, "CreateSnapshot", err, fault.PoolFull)
	if after := files(t, p); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("the pool held %q, now %q", before, after)
	}
}

// The blocks that an image without a record shares stay reserved.
func TestSharedBlocksOfAnImageWithoutRecordStayReserved(t *testing.T) {
	p := realPool(t, "xfs")
	a := mustCreate(t, p, "a", 4*small)
	writeOver(t, p.ImagePath(a.ID), a.Size, 'a')
	b, err := p.Create(t.Context(), pool.NewVolume{Name: "b", Size: a.Size, From: pool.From{Volume: a.ID}})
	must(t, err)
	before, err := p.Free(t.Context())
	must(t, err)
	must(t, os.Remove(p.file(pool.VolumeRef(b.ID), recordExt)))
	if after, err := p.Free(t.Context()); err != nil || after-before > 2*pool.SizeStep {
		t.Errorf("Free = %d, %v, was %d with the record", after, err, before)
	}
}

// L3: a copy of an image that cp has made shares its blocks, and the volume can still be overwritten when the pool reports that it is
// full.
func TestBlocksThatAForeignCopySharesStayReserved(t *testing.T) {
	p := realPool(t, "xfs")
	a := mustCreate(t, p, "a", 10*small)
	writeOver(t, p.ImagePath(a.ID), a.Size, 'a')
	output(t, "cp", "--reflink=always", p.ImagePath(a.ID), p.ImagePath(a.ID)+".bak")
	must(t, unix.Mkfifo(p.path(string(pool.Volumes), "pipe"), 0o600))
	free, err := p.Free(t.Context())
	must(t, err)
	mustCreate(t, p, "rest", free/pool.SizeStep*pool.SizeStep)
	writeOver(t, p.ImagePath(a.ID), a.Size, 'b')
}

// L3: a snapshot without space for later writes to its volume is refused, and no file of it remains.
func TestSnapshotWithoutRoomIsExhausted(t *testing.T) {
	p := realPool(t, "xfs")
	a := mustCreate(t, p, "a", 8*small)
	writeOver(t, p.ImagePath(a.ID), a.Size, 'a')
	free, err := p.Free(t.Context())
	must(t, err)
	rest := mustCreate(t, p, "rest", (free-4*small)/pool.SizeStep*pool.SizeStep)
	before := files(t, p)
	_, err = p.CreateSnapshot(t.Context(), pool.NewSnapshot{Name: "s", Volume: a.ID})
	wantKind(t, "CreateSnapshot without space", err, fault.Exhausted)
	_, err = p.Create(t.Context(), pool.NewVolume{Name: "b", Size: a.Size, From: pool.From{Volume: a.ID}})
	wantKind(t, "Create of a clone without space", err, fault.Exhausted)
	if after := files(t, p); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("the pool held %q, now %q", before, after)
	}
	must(t, p.Delete(t.Context(), rest.ID))
	made, err := p.CreateSnapshot(t.Context(), pool.NewSnapshot{Name: "s", Volume: a.ID})
	must(t, err)
	// When it goes, all that it cost comes back.
	must(t, p.DeleteSnapshot(t.Context(), made.ID))
	if now, err := p.Free(t.Context()); err != nil || max(now-free, free-now) > 2*pool.SizeStep {
		t.Errorf("Free = %d, %v, want %d again", now, err, free)
	}
}

// C2: a restore has the content of its snapshot and the size of the request.
func TestRestoreHasTheContentAndTheSize(t *testing.T) {
	p := realPool(t, "xfs")
	a := mustCreate(t, p, "a", small)
	fillVolume(t, p, a.ID, 'a')
	want, err := os.ReadFile(p.ImagePath(a.ID))
	must(t, err)
	made, err := p.CreateSnapshot(t.Context(), pool.NewSnapshot{Name: "s", Volume: a.ID})
	must(t, err)
	fillVolume(t, p, a.ID, 'b')
	must(t, p.Delete(t.Context(), a.ID)) // a snapshot does not need its volume
	for _, size := range []int64{small, 3 * small} {
		r, err := p.Create(t.Context(), pool.NewVolume{Name: "r" + string(rune('0'+size/small)), Size: size, From: pool.From{Snapshot: made.ID}})
		must(t, err)
		e, err := p.Get(t.Context(), r.ID)
		if err != nil || e.Size != size || e.Allocated < size || r.SourceOf() != (pool.From{Snapshot: made.ID}) {
			t.Errorf("restore to %d = %+v, %v", size, e, err)
		}
		data, err := os.ReadFile(p.ImagePath(r.ID))
		if err != nil || string(data[:small]) != string(want) || strings.Trim(string(data[small:]), "\x00") != "" {
			t.Errorf("the restored volume does not have the content of the snapshot (%d bytes, %v)", len(data), err)
		}
		must(t, p.Delete(t.Context(), r.ID))
	}
	big, err := p.Create(t.Context(), pool.NewVolume{Name: "big", Size: 2 * small})
	must(t, err)
	_, err = p.Create(t.Context(), pool.NewVolume{Name: "less", Size: small, From: pool.From{Volume: big.ID}})
	wantKind(t, "a clone smaller than its source", err, fault.OutOfRange)
	_, err = p.Create(t.Context(), pool.NewVolume{Name: "of nothing", Size: small, From: pool.From{Snapshot: pool.NewID()}})
	wantKind(t, "a restore of nothing", err, fault.NotFound)
	_, err = p.Create(t.Context(), pool.NewVolume{Name: "huge", Size: 100 * small, From: pool.From{Volume: big.ID}})
	wantKind(t, "a clone without space", err, fault.Exhausted)
	wantReason(t, "a clone without space", err, fault.PoolFull)
}

// A reflink of a volume in use needs no other program and is done at once.
func TestReflinkOfAVolumeInUse(t *testing.T) {
	p := realPool(t, "xfs")
	a := mustCreate(t, p, "a", small)
	writeOver(t, p.ImagePath(a.ID), small, 'a')
	defer hold(t, p, a.ID)()
	made, err := p.CreateSnapshot(t.Context(), pool.NewSnapshot{Name: "s", Volume: a.ID})
	must(t, err)
	clone, err := p.Create(t.Context(), pool.NewVolume{Name: "c", Size: small, From: pool.From{Volume: a.ID}})
	must(t, err)
	for _, image := range []string{p.file(pool.SnapshotRef(made.ID), imageExt), p.ImagePath(clone.ID)} {
		if data, err := os.ReadFile(image); err != nil || int64(len(data)) != small || strings.Trim(string(data), "a") != "" {
			t.Errorf("%s has %d bytes, %v, and they are not those of the volume", image, len(data), err)
		}
	}
}

// C11: a snapshot is whole after a power loss, or it does not exist.
func TestPowerLossOfASnapshotLeavesItWhole(t *testing.T) {
	p := realPool(t, "xfs")
	a := mustCreate(t, p, "a", small)
	writeOver(t, p.ImagePath(a.ID), small, 'a')
	made, err := p.CreateSnapshot(t.Context(), pool.NewSnapshot{Name: "s", Volume: a.ID})
	must(t, err)
	if err := shutdown(p.dir); err != nil {
		t.Logf("this filesystem cannot be shut down like by a power loss: %v", err)
		return
	}
	remount(t, p.dir)
	p, err = Open(t.Context(), pool.Config{Dir: p.dir, Node: "n1"})
	must(t, err)
	e, err := p.GetSnapshot(t.Context(), made.ID)
	if err != nil || e.Kind != pool.Whole {
		t.Fatalf("GetSnapshot after a power loss = %+v, %v", e, err)
	}
	data, err := os.ReadFile(p.file(pool.SnapshotRef(e.ID), imageExt))
	if err != nil || int64(len(data)) != small || strings.Trim(string(data), "a") != "" {
		t.Errorf("the snapshot has %d bytes, %v, and they are not those of the volume", len(data), err)
	}
}

func remount(t *testing.T, mountpoint string) {
	t.Helper()
	loop := output(t, "findmnt", "-no", "SOURCE", mountpoint)
	// Without this the loop device, which ends with its last user, would go with the filesystem.
	keep, err := os.Open(loop)
	must(t, err)
	defer func() { _ = keep.Close() }()
	output(t, "umount", mountpoint)
	output(t, "mount", loop, mountpoint)
}

// shutdown stops a filesystem without writing anything more: FS_IOC_SHUTDOWN with NOLOGFLUSH.
func shutdown(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	const fsShutdown = 0x8004587d
	return unix.IoctlSetPointerInt(int(f.Fd()), fsShutdown, 2)
}
