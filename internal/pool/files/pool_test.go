package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

var must, wantKind, wantReason = expect.NoError, expect.Kind, expect.Reason

const small = pool.SmallestVolume

// diskOf simulates a filesystem that fits n small volumes.
func diskOf(n int64) func(dir string) (space, error) {
	total := n*small + minFloor
	return func(dir string) (space, error) {
		files, err := filepath.Glob(filepath.Join(dir, "*s", "*"+imageExt))
		if err != nil {
			return space{}, err
		}
		used := int64(0)
		for _, f := range files {
			if _, allocated, err := sizes(f); err == nil {
				used += allocated
			}
		}
		return space{total: total, free: total - used}, nil
	}
}

// configOf is that of a pool in a folder, which is made. If nothing is mounted there, its mount table says that an ext4 is.
func configOf(t *testing.T, dir string) pool.Config {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	return pool.Config{Dir: dir, Node: "n1", MountTable: mounts.Table(t, dir)}
}

func openPool(t *testing.T, dir string) *Pool {
	t.Helper()
	cfg := configOf(t, dir)
	cfg.SysDir = filepath.Join(dir, "no loop devices")
	p, err := Open(t.Context(), cfg)
	must(t, err)
	p.disk.statfs = diskOf(20)
	return p
}

func mustCreate(t *testing.T, p *Pool, name string, size int64) pool.Record {
	t.Helper()
	r, err := p.Create(t.Context(), pool.NewVolume{Name: name, Size: size})
	must(t, err)
	return r
}

// files returns the names of the files of volumes and snapshots.
func files(t *testing.T, p *Pool) []string {
	t.Helper()
	var names []string
	for _, s := range []pool.Folder{pool.Volumes, pool.Snapshots} {
		found, err := os.ReadDir(p.path(string(s)))
		must(t, err)
		for _, f := range found {
			names = append(names, f.Name())
		}
	}
	return names
}

// Both programs of a node start at the same time: one finds a folder without a pool, and the other makes it then.
func TestPoolThatAnotherProgramHasJustMadeIsNotForeign(t *testing.T) {
	dir := t.TempDir()
	openPool(t, dir)
	cfg := configOf(t, dir)
	p, err := newPool(cfg)
	must(t, err)
	wantKind(t, "checkEmpty", p.checkEmpty(cfg), fault.None)
}

func TestOpenRefusesWhatIsNotThisNodesPool(t *testing.T) {
	tests := map[string]struct {
		prepare func(t *testing.T, dir string)
		cfg     pool.Config
		want    fault.Kind
		left    []string
	}{
		"an empty folder becomes a pool": {nil, pool.Config{Node: "n1"}, fault.None, []string{"lock", "pool.json", "snapshots", "volumes"}},
		"the root of a fresh ext4 becomes a pool": {func(t *testing.T, dir string) {
			must(t, os.Mkdir(filepath.Join(dir, "lost+found"), 0o700))
		}, pool.Config{Node: "n1"}, fault.None, []string{"lock", "lost+found", "pool.json", "snapshots", "volumes"}},
		"a pool that must exist is not made":    {nil, pool.Config{MustExist: true}, fault.Precondition, nil},
		"a node needs a name":                   {nil, pool.Config{}, fault.InvalidArgument, nil},
		"a node's name is a DNS subdomain":      {nil, pool.Config{Node: "N1"}, fault.InvalidArgument, nil},
		"another node's pool is refused":        {madeFor("n2"), pool.Config{Node: "n1"}, fault.Precondition, []string{"lock", "pool.json", "snapshots", "volumes"}},
		"whatever node is enough for an outlay": {madeFor("n2"), pool.Config{MustExist: true}, fault.None, []string{"lock", "pool.json", "snapshots", "volumes"}},
		"a folder that holds something else is refused and not touched": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "passwd"), nil, 0o600))
		}, pool.Config{Node: "n1"}, fault.Precondition, []string{"passwd"}},
		"a pool that lost its pool.json is refused": {func(t *testing.T, dir string) {
			mustCreate(t, openPool(t, dir), "a", small)
			must(t, os.Remove(filepath.Join(dir, metaFile)))
		}, pool.Config{Node: "n1"}, fault.Precondition, []string{"lock", "snapshots", "volumes"}},
		"a pool with snapshots alone that lost its pool.json is refused": {func(t *testing.T, dir string) {
			p := openPool(t, dir)
			must(t, os.WriteFile(p.file(pool.SnapshotRef(pool.NewID()), imageExt), nil, 0o600))
			must(t, os.Remove(filepath.Join(dir, metaFile)))
		}, pool.Config{Node: "n1"}, fault.Precondition, []string{"lock", "snapshots", "volumes"}},
		"a damaged pool.json is refused": {func(t *testing.T, dir string) {
			openPool(t, dir)
			must(t, os.Truncate(filepath.Join(dir, metaFile), 9))
		}, pool.Config{Node: "n1"}, fault.Precondition, []string{"lock", "pool.json", "snapshots", "volumes"}},
		"a pool of a newer version is refused": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, metaFile), []byte(`{"format":2,"node":"n1","id":"`+hex32+`"}`), 0o600))
		}, pool.Config{Node: "n1"}, fault.Precondition, []string{"lock", "pool.json"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.prepare != nil {
				tc.prepare(t, dir)
			}
			tc.cfg.Dir, tc.cfg.MountTable = dir, mounts.Table(t, dir)
			_, err := Open(t.Context(), tc.cfg)
			wantKind(t, "Open", err, tc.want)
			var left []string
			found, err := os.ReadDir(dir)
			must(t, err)
			for _, f := range found {
				left = append(left, f.Name())
			}
			if !slices.Equal(left, tc.left) {
				t.Errorf("the folder holds %q, want %q", left, tc.left)
			}
		})
	}
	_, err := Open(t.Context(), pool.Config{Dir: "relative", Node: "n1"})
	wantKind(t, "Open of a relative path", err, fault.InvalidArgument)
}

func madeFor(node string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		cfg := configOf(t, dir)
		cfg.Node = node
		made(t, cfg)
	}
}

func TestOnlyTheOwnerCanRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "pool")
	p := openPool(t, dir)
	mustCreate(t, p, "a", small)
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	}))
}

func TestCreateReservesInFull(t *testing.T) {
	p := openPool(t, t.TempDir())
	tags := []pool.Pair{{Name: "cloudblock-pvc", Value: "data"}}
	r, err := p.Create(t.Context(), pool.NewVolume{Name: "a", Size: small + 1, Tags: tags})
	must(t, err)
	if r.Size != small+pool.SizeStep || r.State != pool.Ready {
		t.Errorf("Create = %+v, want the size rounded up to the step", r)
	}
	e, err := p.FindByName(t.Context(), "a")
	if err != nil || e.Kind != pool.Whole || e.Size != r.Size || e.Allocated < r.Size || e.Record.Tag("cloudblock-pvc") != "data" {
		t.Errorf("FindByName = %+v, %v", e, err)
	}
	if blank, err := p.NeverWritten(r.ID); err != nil || !blank {
		t.Errorf("NeverWritten = %v, %v, want true", blank, err)
	}
	f, err := os.OpenFile(p.ImagePath(r.ID), os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte{1}, r.Size-1)
	must(t, err)
	must(t, f.Close())
	if blank, err := p.NeverWritten(r.ID); err != nil || blank {
		t.Errorf("NeverWritten after a write = %v, %v, want false", blank, err)
	}
}

// Other files of the node are written all the time: whatever the free space, Reserved is what the volumes lack.
func TestReservedDoesNotDependOnFreeSpace(t *testing.T) {
	p := openPool(t, t.TempDir())
	r := mustCreate(t, p, "a", small)
	must(t, os.Truncate(p.file(pool.VolumeRef(r.ID), imageExt), 0))
	must(t, os.Truncate(p.file(pool.VolumeRef(r.ID), imageExt), small))
	full, written := diskOf(20), int64(0)
	p.disk.statfs = func(dir string) (space, error) {
		s, err := full(dir)
		written += 4096
		s.free -= written
		return s, err
	}
	if usage, err := p.Usage(t.Context()); err != nil || usage.Reserved != small {
		t.Errorf("Usage = %+v, %v, want %d bytes reserved", usage, err, small)
	}
}

func TestRefusedCreatesLeaveNothing(t *testing.T) {
	p := openPool(t, t.TempDir())
	mustCreate(t, p, "taken", small)
	before := files(t, p)
	tests := map[string]struct {
		req  pool.NewVolume
		want fault.Kind
	}{
		"a name that is taken":      {pool.NewVolume{Name: "taken", Size: 2 * small}, fault.Conflict},
		"more than there is":        {pool.NewVolume{Name: "b", Size: 20 * small}, fault.Exhausted},
		"too small":                 {pool.NewVolume{Name: "b", Size: small - 1}, fault.OutOfRange},
		"zero":                      {pool.NewVolume{Name: "b"}, fault.OutOfRange},
		"negative":                  {pool.NewVolume{Name: "b", Size: -small}, fault.OutOfRange},
		"near the largest integer":  {pool.NewVolume{Name: "b", Size: 1<<63 - 1}, fault.OutOfRange},
		"no name":                   {pool.NewVolume{Size: small}, fault.InvalidArgument},
		"a name that is not UTF-8":  {pool.NewVolume{Name: "\xff", Size: small}, fault.InvalidArgument},
		"tags that no record holds": {pool.NewVolume{Name: "b", Size: small, Tags: []pool.Pair{{Name: "k", Value: strings.Repeat("x", maxMetaLen)}}}, fault.InvalidArgument},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := p.Create(t.Context(), tc.req)
			wantKind(t, "Create", err, tc.want)
			if after := files(t, p); !slices.Equal(before, after) {
				t.Errorf("the pool held %q, now %q", before, after)
			}
		})
	}
}

func TestCancelledCreateLeavesNothing(t *testing.T) {
	for _, at := range []string{"write new file", "create image", "reserve", "sync image"} {
		t.Run(at, func(t *testing.T) {
			p := openPool(t, t.TempDir())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p.disk.before = func(step string) {
				if step == at {
					cancel()
				}
			}
			r, err := p.Create(ctx, pool.NewVolume{Name: "a", Size: small})
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("Create = %v, want %v or success", err, context.Canceled)
			}
			if err != nil && len(files(t, p)) > 0 {
				t.Errorf("the pool holds %q", files(t, p))
			}
			again, err := p.Create(t.Context(), pool.NewVolume{Name: "a", Size: small})
			if r.ID == "" {
				wantKind(t, "the same create again", err, fault.None)
			} else {
				wantKind(t, "the same create again", err, fault.Conflict)
			}
			if again.ID == r.ID {
				t.Errorf("two volumes with the id %q", r.ID)
			}
		})
	}
}

func TestFloorIsBoundedBothWays(t *testing.T) {
	for total, want := range map[int64]int64{1 << 20: minFloor, 100 << 30: 2 << 30, 1 << 50: maxFloor} {
		if got := floor(total); got != want {
			t.Errorf("floor(%d) = %d, want %d", total, got, want)
		}
	}
}
