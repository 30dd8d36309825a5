package files

import (
	"os"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// plantSnapshot puts a snapshot of a volume into a pool without reflinks.
func plantSnapshot(p *Pool, of pool.Record, name string) (pool.ID, error) {
	r := pool.Record{ID: pool.NewID(), Name: name, Size: of.Size, State: pool.Ready, Created: pool.Now(), BlockSize: of.BlockSize, Volume: of.ID}
	image, err := os.ReadFile(p.ImagePath(of.ID))
	if err == nil {
		err = os.WriteFile(p.file(r.Ref(), imageExt), image, filePerm)
	}
	if err == nil {
		err = p.writeRecord(r.Ref(), r)
	}
	return r.ID, err
}

// A pool without reflinks has no snapshots, clones and restores, and says what to use instead.
func TestPoolWithoutReflinksHasNoCopies(t *testing.T) {
	p := openPool(t, t.TempDir())
	p.reflink = false
	a := mustCreate(t, p, "a", small)
	made, err := plantSnapshot(p, a, "planted")
	must(t, err)
	before := files(t, p)
	_, snapshot := p.CreateSnapshot(t.Context(), pool.NewSnapshot{Name: "s", Volume: a.ID})
	_, clone := p.Create(t.Context(), pool.NewVolume{Name: "c", Size: small, From: pool.From{Volume: a.ID}})
	_, restore := p.Create(t.Context(), pool.NewVolume{Name: "r", Size: small, From: pool.From{Snapshot: made}})
	for what, err := range map[string]error{"snapshot": snapshot, "clone": clone, "restore": restore} {
		wantKind(t, what, err, fault.InvalidArgument)
		wantReason(t, what, err, fault.NoCopies)
		if err == nil || !strings.Contains(err.Error(), "use a class of a pool on an xfs") {
			t.Errorf("%s = %v, want what to use instead", what, err)
		}
	}
	err = p.ReadBlocks(t.Context(), pool.BlocksRequest{Target: made}, nil)
	wantKind(t, "ReadBlocks of a snapshot that is there", err, fault.Precondition)
	wantReason(t, "ReadBlocks", err, fault.NoCopies)
	if after := files(t, p); len(after) != len(before) {
		t.Errorf("the pool held %q, now %q", before, after)
	}
}

// C14: whatever is lost of a snapshot, what is there stays until it is removed by name.
func TestOrphansOfSnapshotsAreKept(t *testing.T) {
	dir := t.TempDir()
	p := openPool(t, dir)
	a := mustCreate(t, p, "a", small)
	var ids []pool.ID
	for _, name := range []string{"record gone", "image gone", "record cut off", "image cut off"} {
		made, err := plantSnapshot(p, a, name)
		must(t, err)
		ids = append(ids, made)
	}
	must(t, os.Remove(p.file(pool.SnapshotRef(ids[0]), recordExt)))
	must(t, os.Remove(p.file(pool.SnapshotRef(ids[1]), imageExt)))
	must(t, os.Truncate(p.file(pool.SnapshotRef(ids[2]), recordExt), 9))
	must(t, os.Truncate(p.file(pool.SnapshotRef(ids[3]), imageExt), small-1))
	before := files(t, p)
	p = openPool(t, dir)
	must(t, p.Delete(t.Context(), a.ID))
	for i, want := range []pool.Kind{pool.NoRecord, pool.NoImage, pool.Damaged, pool.Damaged} {
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

func TestOverlap(t *testing.T) {
	for name, tc := range map[string]struct {
		places []place
		want   int64
	}{
		"nothing is shared":             {nil, 0},
		"one image":                     {[]place{{0, 10}}, 0},
		"two images":                    {[]place{{0, 10}, {0, 10}}, 10},
		"four images":                   {[]place{{0, 10}, {0, 10}, {0, 10}, {0, 10}}, 30},
		"a part of an extent":           {[]place{{4, 3}, {0, 10}}, 3},
		"extents that touch":            {[]place{{0, 10}, {10, 10}}, 0},
		"extents that overlap":          {[]place{{8, 10}, {0, 10}, {5, 10}}, 5 + 7},
		"one that ends within another":  {[]place{{0, 20}, {5, 5}, {12, 20}}, 5 + 8},
		"far apart, and each of it two": {[]place{{0, 10}, {1 << 40, 10}, {0, 10}, {1 << 40, 10}}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			if got := overlap(tc.places); got != tc.want {
				t.Errorf("overlap = %d, want %d", got, tc.want)
			}
		})
	}
}

// However many places there are, a number of them is in memory, and the count is never too low.
func TestManyPlacesCountInFull(t *testing.T) {
	for _, most := range []int{8, 5, 4, 1} {
		p := places{most: most}
		for range 2 {
			for at := range int64(4) {
				p.add(place{at * 100, 10})
			}
		}
		if got := p.shared(); got < 40 || len(p.all) > most {
			t.Errorf("with max. %d places in memory, %d are, and %d bytes are shared, want min. 40", most, len(p.all), got)
		}
	}
}
