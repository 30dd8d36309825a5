package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/files"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/snapshots"
)

// volumes runs the sub-command on a pool and returns what it printed.
func volumes(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	var out, stderr bytes.Buffer
	err := run(t.Context(), append([]string{"volumes", "--cloud", "local", "--local-pool", dir}, args...), noEnvironment, &out, &stderr)
	return out.String(), err
}

// listed returns the rows that the sub-command has printed, or the sums.
func listed[T row | sum](t *testing.T, out string, err error) (rows []T) {
	t.Helper()
	ok(t, errors.Join(err, json.Unmarshal([]byte(out), &rows)))
	return rows
}

func newPool(t *testing.T) (*files.Pool, string) {
	t.Helper()
	dir := t.TempDir()
	mounted(t, dir)
	p, err := files.Open(t.Context(), pool.Config{Dir: dir, Node: "n1", MountTable: mountTable})
	ok(t, err)
	return p, dir
}

func newVolume(t *testing.T, p *files.Pool, name string) pool.Record {
	t.Helper()
	r, err := p.Create(t.Context(), pool.NewVolume{Name: name, Size: pool.SmallestVolume, Tags: []pool.Pair{
		{Name: "cloudblock-pvc-namespace", Value: "shop"}, {Name: "cloudblock-pvc", Value: "data-" + name}}})
	ok(t, err)
	return r
}

// L4: a volume without a record is in the list, too.
func TestVolumesListsOrphansToo(t *testing.T) {
	p, dir := newPool(t)
	whole, bare, gone, broken := newVolume(t, p, "whole"), newVolume(t, p, "bare"), newVolume(t, p, "gone"), newVolume(t, p, "broken")
	folder := filepath.Join(dir, "volumes")
	for _, err := range []error{
		os.Remove(filepath.Join(folder, string(bare.ID)+".json")),
		os.Remove(p.ImagePath(gone.ID)),
		os.WriteFile(filepath.Join(folder, string(broken.ID)+".json"), []byte("{"), 0o600),
		os.WriteFile(filepath.Join(folder, "notes\x1b[2J.txt"), nil, 0o600),
	} {
		ok(t, err)
	}
	image, err := os.Open(p.ImagePath(whole.ID))
	ok(t, err)
	defer func() { _ = image.Close() }()
	ok(t, unix.Flock(int(image.Fd()), unix.LOCK_SH))

	out, err := volumes(t, dir, "--output", "json", "--node-id", "n1")
	rows := listed[row](t, out, err)
	got := map[string]row{}
	for _, r := range rows {
		got[strings.TrimPrefix(r.ID, "n1/default/")] = r
	}
	want := map[pool.ID]string{whole.ID: "ready", bare.ID: "image without record", gone.ID: "record without image", broken.ID: "damaged", "": "unknown file"}
	if len(rows) != len(want) {
		t.Errorf("%d rows, want %d", len(rows), len(want))
	}
	for id, state := range want {
		if r := got[string(id)]; r.State != state || *r.InUse != (id == whole.ID) || (r.Problem == "") != (id == whole.ID) {
			t.Errorf("row of %q = %+v, want state %q", id, r, state)
		}
	}
	if r := got[string(whole.ID)]; r.Claim != "data-whole" || r.Namespace != "shop" || r.Size != pool.SmallestVolume || r.Created == nil {
		t.Errorf("row of the whole volume = %+v", r)
	}

	table, err := volumes(t, dir)
	ok(t, err)
	for _, word := range []string{"CLAIM", "n1/default/" + string(whole.ID), "shop/data-whole", "16 MiB", "an open file", "image without record"} {
		if !strings.Contains(table, word) {
			t.Errorf("the table lacks %q:\n%s", word, table)
		}
	}
	if strings.Contains(table, "\x1b") {
		t.Error("the table carries a terminal sequence out of a file name")
	}
}

// L4: the note about what is damaged does not send an operator to --delete while the data may be there.
func TestVolumesAdvisesToPutBackWhatIsMissing(t *testing.T) {
	p, dir := newPool(t)
	ok(t, os.Remove(filepath.Join(dir, "volumes", string(newVolume(t, p, "bare").ID)+".json")))
	var out, notes bytes.Buffer
	err := run(t.Context(), []string{"volumes", "--cloud", "local", "--local-pool", dir}, noEnvironment, &out, &notes)
	if want := "put back what is missing"; err != nil || !strings.Contains(notes.String(), "1 of 1 are damaged") || !strings.Contains(notes.String(), want) {
		t.Errorf("volumes = %v with the note %q, want %q in it", err, &notes, want)
	}
}

// L4: a delete removes one volume, by its exact id, and only if nothing uses it.
func TestVolumesDeletesExactlyOneThatIsFree(t *testing.T) {
	p, dir := newPool(t)
	a, b := newVolume(t, p, "a"), newVolume(t, p, "b")

	image, err := os.Open(p.ImagePath(a.ID))
	ok(t, err)
	ok(t, unix.Flock(int(image.Fd()), unix.LOCK_SH))
	if _, err := volumes(t, dir, "--delete", p.Handle(a.ID).String()); !errors.Is(err, fault.Precondition) {
		t.Errorf("delete of a volume in use = %v, want %v", err, fault.Precondition)
	}
	ok(t, image.Close())
	if _, err := volumes(t, dir, "--delete", "n2/default/"+string(a.ID)); !errors.Is(err, fault.NotFound) {
		t.Errorf("delete of another node's volume = %v, want %v", err, fault.NotFound)
	}
	// An orphan is deleted by its id in the list.
	ok(t, os.Truncate(filepath.Join(dir, "volumes", string(a.ID)+".json"), 5))
	if out, err := volumes(t, dir, "--delete", p.Handle(a.ID).String()); err != nil || out != "deleted volume n1/default/"+string(a.ID)+"\n" {
		t.Errorf("delete = %q, %v", out, err)
	}
	if _, err := volumes(t, dir, "--delete", p.Handle(a.ID).String()); !errors.Is(err, fault.NotFound) {
		t.Errorf("second delete = %v, want %v", err, fault.NotFound)
	}
	left, err := p.List(t.Context())
	if err != nil || len(left) != 1 || left[0].ID != b.ID || left[0].Kind != pool.Whole {
		t.Errorf("left = %+v, %v, want only volume b", left, err)
	}
}

func TestVolumesNamesEveryWrongFlag(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), []string{"volumes", "--cloud", "local", "--local-pool", "rel", "--node-id", "N_1", "--delete", "", "--output", "xml", "--unowned", "extra"}, noEnvironment, &out, &out)
	if !errors.Is(err, driver.ErrCommandLine) {
		t.Fatalf("volumes = %v, want %v", err, driver.ErrCommandLine)
	}
	for _, word := range []string{"--local-pool", "--node-id", "--delete", "--output", "--unowned", "extra"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not name %s: %v", word, err)
		}
	}
	if err := run(t.Context(), []string{"volumes", "-h"}, noEnvironment, &out, &out); err != nil || !strings.Contains(out.String(), "-delete") {
		t.Errorf("help = %v, %s", err, &out)
	}
	if _, err := volumes(t, t.TempDir(), "--force"); !errors.Is(err, driver.ErrCommandLine) || !strings.Contains(err.Error(), "force") {
		t.Errorf("an unknown flag = %v, want %v naming it", err, driver.ErrCommandLine)
	}
	dir := t.TempDir()
	if _, err := volumes(t, dir); !errors.Is(err, pool.ErrNotHere) {
		t.Errorf("a folder where nothing is mounted = %v, want %v", err, pool.ErrNotHere)
	}
	mounted(t, dir)
	if _, err := volumes(t, dir); fault.ReasonOf(err) != fault.PoolUnusable {
		t.Errorf("a filesystem that is no pool = %v, want %s", err, string(fault.PoolUnusable))
	}
	if _, err := volumes(t, t.TempDir(), "--delete", ""); !errors.Is(err, driver.ErrCommandLine) {
		t.Errorf("an empty id = %v, want %v", err, driver.ErrCommandLine)
	}
}

// C14: of a flag that is given twice package flag takes the last value. The first list of claims would protect nothing then, and only one
// of two volumes would be deleted. A list of another cluster protects nothing, either.
func TestVolumesTakesOneListAndOneID(t *testing.T) {
	p, dir := newPool(t)
	kept, other := p.Handle(newVolume(t, p, "kept").ID).String(), p.Handle(newVolume(t, p, "other").ID).String()
	var lists []string
	for i, handle := range []string{kept, other} {
		lists = append(lists, filepath.Join(t.TempDir(), strconv.Itoa(i)))
		ok(t, os.WriteFile(lists[i], []byte(handle), 0o600))
	}
	for flag, args := range map[string][]string{
		"--claimed": {"--claimed", lists[0], "--claimed", lists[1], "--delete", kept},
		"--delete":  {"--delete", kept, "--delete", other},
	} {
		if _, err := volumes(t, dir, args...); !errors.Is(err, driver.ErrCommandLine) || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s twice: %v, want a wrong command line", flag, err)
		}
	}
	ok(t, os.WriteFile(lists[1], []byte("n1/default/of-another-cluster"), 0o600))
	if _, err := volumes(t, dir, "--claimed", lists[1], "--delete", kept); !errors.Is(err, fault.Precondition) || !strings.Contains(err.Error(), "another cluster's") {
		t.Errorf("--delete by a list without anything that is here: %v, want %v", err, fault.Precondition)
	}
	if out, err := volumes(t, dir); err != nil || !strings.Contains(out, kept) || !strings.Contains(out, other) {
		t.Errorf("the pool has: %v\n%s\nwant both", err, out)
	}
}

// C14: a list is known by what it claims of this cluster, or of what has no mark, as a vendor driver's volumes. What another cluster made
// shows that it may be that cluster's list.
func TestAListIsKnownByWhatItClaims(t *testing.T) {
	for name, tc := range map[string]struct {
		row  row
		want bool
	}{
		"this cluster's":    {row{ID: "70", Ours: true, made: true}, true},
		"without a mark":    {row{ID: "70"}, true},
		"another cluster's": {row{ID: "70", made: true}, false},
		"not claimed":       {row{ID: "71", Ours: true, made: true}, false},
	} {
		c, err := readClaims(objectsFile(t, 2*time.Hour, pvOf("a", "70"), claimOf("a", "", time.Time{})))
		ok(t, err)
		if c.judge([]row{tc.row}); c.known != tc.want {
			t.Errorf("a list of a volume that is %s is known: %t, want %t", name, c.known, tc.want)
		}
	}
}

// L4: a file that is no snapshot has no id, so the table has its name, and no row offers an id that --delete refuses.
func TestVolumesNamesAForeignFileAmongSnapshots(t *testing.T) {
	_, dir := newPool(t)
	ok(t, os.WriteFile(filepath.Join(dir, "snapshots", "notes.txt"), nil, 0o600))
	out, err := volumes(t, dir, "--output", "json")
	rows := listed[row](t, out, err)
	if len(rows) != 1 || rows[0].ID != "" || rows[0].Kind != kindSnapshot || rows[0].File != "notes.txt" {
		t.Errorf("the rows are %+v, want one without an id", rows)
	}
	if table, err := volumes(t, dir); err != nil || !strings.Contains(table, "notes.txt") {
		t.Errorf("the table = %s, %v, want the file in it", table, err)
	}
}

// L4: snapshots are listed, and removed by an explicit delete only.
func TestVolumesShowsAndDeletesSnapshots(t *testing.T) {
	p, dir := newPool(t)
	vol := newVolume(t, p, "a")
	var ids []string
	for _, name := range []string{"whole", "bare"} {
		made, err := snapshots.Add(dir, vol.ID, name)
		ok(t, err)
		ids = append(ids, p.Handle(made).Snapshot())
	}
	bare := strings.TrimPrefix(ids[1], "n1/default/snap-")
	ok(t, os.Remove(filepath.Join(dir, "snapshots", bare+".json")))
	out, err := volumes(t, dir, "--output", "json")
	states := map[string]string{}
	for _, r := range listed[row](t, out, err) {
		states[r.ID] = r.State + " " + r.SnapshotOf
	}
	for id, want := range map[string]string{
		p.Handle(vol.ID).String(): "ready ", ids[0]: "ready " + p.Handle(vol.ID).String(), ids[1]: "image without record ",
	} {
		if states[id] != want {
			t.Errorf("row of %s = %q, want %q", id, states[id], want)
		}
	}
	if table, err := volumes(t, dir); err != nil || !strings.Contains(table, "snapshot of n1/default/"+string(vol.ID)) {
		t.Errorf("the table = %s, %v, want what it is a snapshot of", table, err)
	}
	// Without snap- it is the id of a volume, which does not exist.
	if _, err := volumes(t, dir, "--delete", strings.Replace(ids[1], "snap-", "", 1)); !errors.Is(err, fault.NotFound) {
		t.Errorf("--delete of a volume that is not there = %v, want %v", err, fault.NotFound)
	}
	for _, id := range ids {
		if out, err := volumes(t, dir, "--delete", id); err != nil || !strings.Contains(out, "snap-") {
			t.Errorf("--delete %s = %q, %v", id, out, err)
		}
	}
	if left, err := p.ListSnapshots(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left = %+v, %v", left, err)
	}
	if _, err := p.Get(t.Context(), vol.ID); err != nil {
		t.Errorf("the volume is gone too: %v", err)
	}
}

// L4: a volume whose image was removed is no orphan while a loop device still has its data, and the list names the device.
func TestVolumesShowsTheDeviceOfAMissingImage(t *testing.T) {
	dir, sys := t.TempDir(), t.TempDir()
	mounted(t, dir)
	p, err := files.Open(t.Context(), pool.Config{Dir: dir, Node: "n1", MountTable: mountTable, SysDir: sys})
	ok(t, err)
	gone := newVolume(t, p, "gone")
	ok(t, os.Remove(p.ImagePath(gone.ID)))
	ok(t, os.MkdirAll(filepath.Join(sys, "loop7", "loop"), 0o700))
	ok(t, os.WriteFile(filepath.Join(sys, "loop7", "loop", "backing_file"), []byte(p.ImagePath(gone.ID)+" (deleted)\n"), 0o600))
	e, err := p.Get(t.Context(), gone.ID)
	ok(t, err)
	if r := poolRow(t.Context(), p, e); r.State != "record without image" || r.UsedBy != "/dev/loop7" || !*r.InUse {
		t.Errorf("the row is %+v, want that /dev/loop7 uses it", r)
	}
}
