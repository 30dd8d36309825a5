package files

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// C14: only a delete of exactly that id removes an orphan: no start, list, create or growth does, whatever files the
// folder holds.
func TestOrphansAreReportedAndKept(t *testing.T) {
	record := func(p *Pool, id pool.ID) string { return p.file(pool.VolumeRef(id), recordExt) }
	tests := map[string]struct {
		breakIt func(t *testing.T, p *Pool, id pool.ID)
		kind    pool.Kind
		// del and remove are the results of Delete, then Remove.
		del, remove fault.Kind
	}{
		"a record that is gone": {func(t *testing.T, p *Pool, id pool.ID) { must(t, os.Remove(record(p, id))) }, pool.NoRecord, fault.None, fault.NotFound},
		"an image that is gone": {func(t *testing.T, p *Pool, id pool.ID) { must(t, os.Remove(p.ImagePath(id))) }, pool.NoImage, fault.None, fault.NotFound},
		"a record cut off":      {func(t *testing.T, p *Pool, id pool.ID) { must(t, os.Truncate(record(p, id), 20)) }, pool.Damaged, fault.Precondition, fault.None},
		"a record of another volume": {func(t *testing.T, p *Pool, id pool.ID) {
			other := mustCreate(t, p, "other", small)
			must(t, os.Rename(record(p, other.ID), record(p, id)))
			must(t, os.Remove(p.ImagePath(other.ID)))
		}, pool.Damaged, fault.Precondition, fault.None},
		"an image cut off":  {func(t *testing.T, p *Pool, id pool.ID) { must(t, os.Truncate(p.ImagePath(id), small-1)) }, pool.Damaged, fault.Precondition, fault.None},
		"an image too long": {func(t *testing.T, p *Pool, id pool.ID) { must(t, os.Truncate(p.ImagePath(id), small+1)) }, pool.Damaged, fault.Precondition, fault.None},
		"an empty image":    {func(t *testing.T, p *Pool, id pool.ID) { must(t, os.Truncate(p.ImagePath(id), 0)) }, pool.Damaged, fault.Precondition, fault.None},
		"a link for an image": {func(t *testing.T, p *Pool, id pool.ID) {
			must(t, os.Remove(p.ImagePath(id)))
			must(t, os.Symlink("/etc/passwd", p.ImagePath(id)))
		}, pool.Damaged, fault.Precondition, fault.Precondition},
		"a folder for an image": {func(t *testing.T, p *Pool, id pool.ID) {
			must(t, os.Remove(p.ImagePath(id)))
			must(t, os.Mkdir(p.ImagePath(id), 0o700))
		}, pool.Damaged, fault.Precondition, fault.Precondition},
		"a pipe for a record": {func(t *testing.T, p *Pool, id pool.ID) {
			must(t, os.Remove(record(p, id)))
			must(t, unix.Mkfifo(record(p, id), 0o600))
		}, pool.Damaged, fault.Precondition, fault.None},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := openPool(t, dir)
			r := mustCreate(t, p, "a", small)
			tc.breakIt(t, p, r.ID)
			before := files(t, p)

			p = openPool(t, dir)
			entries, err := p.List(t.Context())
			if err != nil || len(entries) != 1 || entries[0].Kind != tc.kind || entries[0].ID != r.ID || entries[0].Problem == "" {
				t.Errorf("List = %+v, %v, want one entry of kind %q", entries, err, tc.kind)
			}
			_, err = p.Grow(t.Context(), r.ID, 2*small)
			wantKind(t, "Grow", err, fault.Precondition)
			if data := len(entries) > 0 && entries[0].Size > 0; err != nil && strings.Contains(err.Error(), "its data is there, and --delete would remove it") != data {
				t.Errorf("Grow = %v, want it to name the data: %t", err, data)
			}
			called := false
			err = p.Use(t.Context(), r.ID, func(*os.File, pool.Record) error { called = true; return nil })
			if fault.Of(err) != fault.Precondition || called {
				t.Errorf("Use = %v, called %v, want %v", err, called, fault.Precondition)
			}
			other := mustCreate(t, p, "b", small)
			must(t, p.Delete(t.Context(), other.ID))
			if after := files(t, p); !slices.Equal(before, after) {
				t.Errorf("the pool held %q, now %q", before, after)
			}
			wantKind(t, "Delete", p.Delete(t.Context(), r.ID), tc.del)
			wantKind(t, "Remove", p.Remove(t.Context(), r.ID), tc.remove)
			if left := files(t, p); len(left) > 0 && tc.remove != fault.Precondition {
				t.Errorf("after the delete the pool holds %q", left)
			}
		})
	}
}

func TestUnknownFilesStay(t *testing.T) {
	p := openPool(t, t.TempDir())
	names := []string{"README", hex32, hex32 + ".img.new", hex32 + ".img~", "x" + hex32 + ".img", hex32[1:] + ".img", hex32[1:] + "F.img"}
	for _, name := range names {
		must(t, os.WriteFile(p.path(string(pool.Volumes), name), []byte("precious"), 0o600))
	}
	r := mustCreate(t, p, "a", small)
	entries, err := p.List(t.Context())
	must(t, err)
	if entries[0].ID != r.ID || len(entries) != 1+len(names) {
		t.Errorf("List = %+v, want the volume first, then %d unknown files", entries, len(names))
	}
	for _, e := range entries[1:] {
		if e.Kind != pool.Unknown || !slices.Contains(names, e.File) {
			t.Errorf("entry %+v, want an unknown file", e)
		}
	}
	must(t, p.Delete(t.Context(), r.ID))
	if got := files(t, p); len(got) != len(names) {
		t.Errorf("the pool holds %q, want %q", got, names)
	}
}

func TestDeleteRefusesAVolumeInUse(t *testing.T) {
	dir := t.TempDir()
	p := openPool(t, dir)
	r := mustCreate(t, p, "a", small)

	f, err := os.OpenFile(p.ImagePath(r.ID), os.O_RDWR, 0)
	must(t, err)
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_SH))
	if user, err := p.InUse(t.Context(), pool.Entry{ID: r.ID}); err != nil || user == "" {
		t.Errorf("InUse of a locked image = %q, %v", user, err)
	}
	wantKind(t, "Delete of a locked image", p.Delete(t.Context(), r.ID), fault.Precondition)
	wantKind(t, "Remove of a locked image", p.Remove(t.Context(), r.ID), fault.Precondition)
	must(t, f.Close())

	// A loop device of another program, in another mount namespace, of an image that is removed since.
	loop := p.sysDir + "/loop7/loop"
	must(t, os.MkdirAll(loop, 0o700))
	for _, backing := range []string{p.ImagePath(r.ID), "/elsewhere/" + r.ID.ImageName(), p.ImagePath(r.ID) + " (deleted)"} {
		must(t, os.WriteFile(loop+"/backing_file", []byte(backing+"\n"), 0o600))
		if user, err := p.InUse(t.Context(), pool.Entry{ID: r.ID}); err != nil || user != "/dev/loop7" {
			t.Errorf("InUse below %s = %q, %v, want /dev/loop7", backing, user, err)
		}
		wantKind(t, "Delete of an image below a loop device", p.Delete(t.Context(), r.ID), fault.Precondition)
	}
	must(t, os.WriteFile(loop+"/backing_file", []byte("/elsewhere/x"+r.ID.ImageName()+"\n"), 0o600))
	if user, err := p.InUse(t.Context(), pool.Entry{ID: r.ID}); err != nil || user != "" {
		t.Errorf("InUse of a free volume = %q, %v", user, err)
	}
	must(t, p.Delete(t.Context(), r.ID))
	wantKind(t, "Delete again", p.Delete(t.Context(), r.ID), fault.NotFound)
	if left := files(t, p); len(left) > 0 {
		t.Errorf("the pool holds %q", left)
	}
}

// A delete unlinks the image; another hard link to it keeps its data.
func TestDeleteLeavesAHardLinkItsBytes(t *testing.T) {
	p := openPool(t, t.TempDir())
	r := mustCreate(t, p, "a", small)
	fillVolume(t, p, r.ID, 'a')
	made, err := plantSnapshot(p, r, "s")
	must(t, err)
	tests := map[string]struct {
		ref pool.Ref
		del func(context.Context, pool.ID) error
	}{
		"a volume":                {pool.VolumeRef(r.ID), p.Delete},
		"a volume by an operator": {pool.VolumeRef(mustCreate(t, p, "b", small).ID), p.Remove},
		"a snapshot":              {pool.SnapshotRef(made), p.DeleteSnapshot},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			image, keep := p.file(tc.ref, imageExt), filepath.Join(t.TempDir(), "keep.img")
			sum := checksum(t, image)
			size, allocated, err := sizes(image)
			must(t, err)
			must(t, os.Link(image, keep))
			must(t, tc.del(t.Context(), tc.ref.ID))
			if s, a, err := sizes(keep); err != nil || s != size || a != allocated || checksum(t, keep) != sum {
				t.Errorf("the link has %d bytes, %d of them on the disk, %v; want %d, %d and the same content", s, a, err, size, allocated)
			}
			wantKind(t, "Delete again", tc.del(t.Context(), tc.ref.ID), fault.NotFound)
		})
	}
	if left := files(t, p); len(left) > 0 {
		t.Errorf("the pool holds %q", left)
	}
}

// The image of a volume in use was removed: the loop device still holds its data.
func TestDeleteRefusesARemovedImageBelowALoopDevice(t *testing.T) {
	p := openPool(t, t.TempDir())
	r := mustCreate(t, p, "a", small)
	must(t, os.Remove(p.ImagePath(r.ID)))
	loop := p.sysDir + "/loop7/loop"
	must(t, os.MkdirAll(loop, 0o700))
	must(t, os.WriteFile(loop+"/backing_file", []byte(p.ImagePath(r.ID)+" (deleted)\n"), 0o600))
	wantKind(t, "Delete", p.Delete(t.Context(), r.ID), fault.Precondition)
	wantKind(t, "Remove", p.Remove(t.Context(), r.ID), fault.Precondition)
	e, err := p.Get(t.Context(), r.ID)
	if err != nil || e.Kind != pool.NoImage || e.Record.Name != "a" {
		t.Errorf("Get = %+v, %v, want the record", e, err)
	}
	if user, err := p.InUse(t.Context(), e); err != nil || user != "/dev/loop7" {
		t.Errorf("InUse = %q, %v, want the loop device that still has the data", user, err)
	}
	must(t, os.Remove(loop+"/backing_file"))
	if user, err := p.InUse(t.Context(), e); err != nil || user != "" {
		t.Errorf("InUse without the loop device = %q, %v", user, err)
	}
	must(t, p.Delete(t.Context(), r.ID))
}

// A second volume with the name would be blank, while the data of the first one may be repairable.
func TestTheNameOfADamagedVolumeIsTaken(t *testing.T) {
	p := openPool(t, t.TempDir())
	r := mustCreate(t, p, "a", small)
	must(t, os.Truncate(p.ImagePath(r.ID), small-1))
	_, err := p.Create(t.Context(), pool.NewVolume{Name: "a", Size: small})
	wantKind(t, "Create", err, fault.Conflict)
	_, err = p.FindByName(t.Context(), "a")
	wantKind(t, "FindByName", err, fault.Precondition)
	wantReason(t, "FindByName", err, fault.VolumeDamaged)
	_, err = p.FindByName(t.Context(), "")
	wantKind(t, "FindByName of no name", err, fault.NotFound)
	must(t, os.Truncate(p.ImagePath(r.ID), small))
	if e, err := p.FindByName(t.Context(), "a"); err != nil || e.ID != r.ID {
		t.Errorf("FindByName of the repaired volume = %+v, %v", e, err)
	}
}

// C1: a name that cannot be read now may be that of any request: a second volume would have the name, too, once the disk answers. A link
// in place of the record stands for EIO.
func TestARecordThatCannotBeReadMayHaveTheName(t *testing.T) {
	p := openPool(t, t.TempDir())
	r := mustCreate(t, p, "a", small)
	record, saved := p.file(r.Ref(), recordExt), filepath.Join(t.TempDir(), "record")
	must(t, os.Rename(record, saved))
	must(t, os.Symlink(saved, record))
	_, err := p.Create(t.Context(), pool.NewVolume{Name: "a", Size: small})
	wantKind(t, "Create", err, fault.Unavailable)
	must(t, os.Rename(saved, record))
	_, err = p.Create(t.Context(), pool.NewVolume{Name: "a", Size: small})
	wantKind(t, "Create once it is read", err, fault.Conflict)
	must(t, os.Remove(record))
	must(t, os.Symlink(saved, record))
	must(t, p.Remove(t.Context(), r.ID)) // by an operator
	mustCreate(t, p, "a", small)
}

// One object that cannot be removed does not block the other volumes of the node.
func TestWhatCannotBeClearedAwayIsInNobodysWay(t *testing.T) {
	dir := t.TempDir()
	p := openPool(t, dir)
	r := mustCreate(t, p, "a", small)
	r.State = pool.Creating
	must(t, p.writeRecord(r.Ref(), r))
	must(t, os.Remove(p.ImagePath(r.ID)))
	must(t, os.Mkdir(p.ImagePath(r.ID), folderPerm))

	p = openPool(t, dir)
	entries, err := p.List(t.Context())
	if err != nil || len(entries) != 1 || entries[0].Kind != pool.Damaged || entries[0].ID != r.ID || entries[0].Problem == "" {
		t.Errorf("List = %+v, %v, want one entry of kind %q", entries, err, pool.Damaged)
	}
	other := mustCreate(t, p, "b", small)
	must(t, p.Delete(t.Context(), other.ID))
	must(t, os.Remove(p.ImagePath(r.ID)))
	wantKind(t, "Delete once it can be", p.Delete(t.Context(), r.ID), fault.NotFound)
	if left := files(t, p); len(left) > 0 {
		t.Errorf("the pool holds %q", left)
	}
}

// C12: a late delete of an older volume does not remove a newer one of the same name.
func TestDeleteActsOnTheIDNotTheName(t *testing.T) {
	p := openPool(t, t.TempDir())
	old := mustCreate(t, p, "a", small)
	must(t, p.Delete(t.Context(), old.ID))
	fresh := mustCreate(t, p, "a", small)
	wantKind(t, "late Delete", p.Delete(t.Context(), old.ID), fault.NotFound)
	if e, err := p.Get(t.Context(), fresh.ID); err != nil || e.Kind != pool.Whole {
		t.Errorf("Get of the new volume = %+v, %v", e, err)
	}
}
