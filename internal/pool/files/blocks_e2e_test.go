//go:build e2e

package files

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/extents"
)

const (
	block = 4096
	chunk = 64 << 10 // of a backup
)

// readBlocks returns all that ReadBlocks reports, and how many times it did.
func readBlocks(t *testing.T, p *Pool, req pool.BlocksRequest) (found []pool.Range, size int64, sends int) {
	t.Helper()
	must(t, p.ReadBlocks(t.Context(), req, func(of int64, parts []pool.Range) error {
		found, size, sends = append(found, parts...), of, sends+1
		return nil
	}))
	end := req.From
	for _, r := range found {
		if r.Start < end || r.Length <= 0 || r.Start+r.Length > size {
			t.Fatalf("ReadBlocks(%+v) of %d bytes reports %+v after %d", req, size, r, end)
		}
		end = r.Start + r.Length
	}
	return found, size, sends
}

// delta is how two snapshots compare, in chunks: those that differ, those that are reported, and those that differ and are not.
type delta struct{ changed, reported, missed int }

// compare compares what ReadBlocks reports with all bytes of the two snapshots. Without a base, with a file of zeros.
func compare(t *testing.T, p *Pool, base, target pool.ID) (d delta) {
	t.Helper()
	parts, size, _ := readBlocks(t, p, pool.BlocksRequest{Base: base, Target: target})
	open := func(id pool.ID) *os.File {
		f, err := os.Open(p.file(pool.SnapshotRef(id), imageExt))
		must(t, err)
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	is := open(target)
	var was *os.File
	if base != "" {
		was = open(base)
	}
	a, b := make([]byte, chunk), make([]byte, chunk)
	for at := int64(0); at < size; at += chunk {
		clear(b)
		_, err := is.ReadAt(a, at)
		must(t, err)
		if was != nil {
			if _, err := was.ReadAt(b, at); !errors.Is(err, io.EOF) {
				must(t, err)
			}
		}
		parts = slices.DeleteFunc(parts, func(r pool.Range) bool { return r.Start+r.Length <= at })
		reported := len(parts) > 0 && parts[0].Start < at+chunk
		differs := !bytes.Equal(a, b)
		if differs {
			d.changed++
		}
		if reported {
			d.reported++
		}
		for off := int64(0); differs && off < chunk; off += block {
			in := func(r pool.Range) bool { return r.Start <= at+off && at+off+block <= r.Start+r.Length }
			if !bytes.Equal(a[off:off+block], b[off:off+block]) && !slices.ContainsFunc(parts, in) {
				t.Errorf("the block at %d has changed and is not reported", at+off)
				d.missed++
			}
		}
	}
	return d
}

// editor writes to the image of a volume.
type editor struct {
	*os.File
	t *testing.T
}

func edit(t *testing.T, p *Pool, id pool.ID) editor {
	t.Helper()
	f, err := os.OpenFile(p.ImagePath(id), os.O_RDWR, 0)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return editor{f, t}
}

func (e editor) write(at, length int64) {
	e.t.Helper()
	data := make([]byte, length)
	_, _ = rand.Read(data)
	_, err := e.WriteAt(data, at)
	must(e.t, err)
}

func (e editor) fallocate(mode uint32, at, length int64) {
	e.t.Helper()
	must(e.t, unix.Fallocate(int(e.Fd()), mode|unix.FALLOC_FL_KEEP_SIZE, at, length))
}

func snap(t *testing.T, p *Pool, name string, of pool.ID) pool.ID {
	t.Helper()
	r, err := p.CreateSnapshot(t.Context(), pool.NewSnapshot{Name: name, Volume: of})
	must(t, err)
	return r.ID
}

// C16: what is only in the page cache has no blocks yet (delayed allocation). A snapshot writes it out first.
func TestChangesInThePageCacheAreReported(t *testing.T) {
	p := poolBelow(t, "xfs", inMemory(t))
	v := mustCreate(t, p, "v", 2*small)
	e := edit(t, p, v.ID)
	e.fallocate(unix.FALLOC_FL_PUNCH_HOLE, 0, small)
	base := snap(t, p, "base", v.ID)
	e.write(3*block, 5*block)     // into a hole
	e.write(small+block, 2*block) // into unwritten blocks
	target := snap(t, p, "target", v.ID)
	want := []pool.Range{{Start: 3 * block, Length: 5 * block}, {Start: small + block, Length: 2 * block}}
	if got, size, _ := readBlocks(t, p, pool.BlocksRequest{Base: base, Target: target}); !slices.Equal(got, want) || size != 2*small {
		t.Errorf("changed are %v of %d, want %v", got, size, want)
	}
	e.write(4*block, block) // into blocks that are shared
	again := snap(t, p, "again", v.ID)
	want = []pool.Range{{Start: 4 * block, Length: block}}
	if got, _, _ := readBlocks(t, p, pool.BlocksRequest{Base: target, Target: again}); !slices.Equal(got, want) {
		t.Errorf("changed are %v, want %v", got, want)
	}
	compare(t, p, base, again)
}

// C16: unwritten blocks and holes both read as zeros, and any data differs from both.
func TestUnwrittenBlocksAreZeros(t *testing.T) {
	p := poolBelow(t, "xfs", inMemory(t))
	v := mustCreate(t, p, "v", small)
	e := edit(t, p, v.ID)
	e.write(0, 4*block)
	base := snap(t, p, "base", v.ID)
	e.fallocate(unix.FALLOC_FL_ZERO_RANGE, block, 2*block) // data becomes unwritten blocks
	e.write(8*block, block)                                // unwritten blocks become data
	target := snap(t, p, "target", v.ID)
	// As in a snapshot of a version that has not punched them out.
	f, err := os.OpenFile(p.file(pool.SnapshotRef(target), imageExt), os.O_RDWR, 0)
	must(t, err)
	must(t, unix.Fallocate(int(f.Fd()), 0, 16*block, 4*block))
	mappings, _, err := extents.Of(f, small)
	must(t, errors.Join(err, f.Close()))
	if !slices.ContainsFunc(mappings, func(m extents.Mapping) bool { return m.Flags&extents.Unwritten != 0 }) {
		t.Fatalf("no extent of the snapshot is unwritten: %+v", mappings)
	}
	want := []pool.Range{{Start: block, Length: 2 * block}, {Start: 8 * block, Length: block}}
	if got, _, _ := readBlocks(t, p, pool.BlocksRequest{Base: base, Target: target}); !slices.Equal(got, want) {
		t.Errorf("changed are %v, want %v", got, want)
	}
	want = []pool.Range{{Start: 0, Length: block}, {Start: 3 * block, Length: block}, {Start: 8 * block, Length: block}}
	if got, _, _ := readBlocks(t, p, pool.BlocksRequest{Target: target}); !slices.Equal(got, want) {
		t.Errorf("allocated are %v, want %v", got, want)
	}
	compare(t, p, base, target)
	compare(t, p, "", target)
}

// C16: blocks that a deleted snapshot has freed are taken again by the same volume at another offset and by another one.
// A snapshot that is there keeps its own, so no block means one thing in one snapshot and another in the next.
func TestBlocksThatWereFreedAndTakenAgain(t *testing.T) {
	p := poolBelow(t, "xfs", inMemory(t))
	v, other := mustCreate(t, p, "v", small), mustCreate(t, p, "other", small)
	e, o := edit(t, p, v.ID), edit(t, p, other.ID)
	reused := map[int64]bool{}
	base := pool.ID("")
	for round := range int64(12) {
		e.write(round%4*small/4, small/4)
		o.write(round%3*small/4, small/4)
		target := snap(t, p, fmt.Sprint("s", round), v.ID)
		f, err := p.openToRead(pool.SnapshotRef(target))
		must(t, err)
		mappings, _, err := extents.Of(f, small)
		must(t, errors.Join(err, f.Close()))
		for _, m := range mappings {
			for off := int64(0); off < m.Length; off += block {
				reused[m.Physical+off] = reused[m.Physical+off] || round > 0
			}
		}
		if d := compare(t, p, base, target); d.changed == 0 {
			t.Errorf("round %d: nothing has changed", round)
		}
		if base != "" {
			must(t, p.DeleteSnapshot(t.Context(), base))
		}
		base = target
	}
	if int64(len(reused)) >= 12*small/4/block {
		t.Errorf("no block was taken again: %d were in use", len(reused))
	}
}

// C16: what a growth adds between two snapshots is reported.
func TestGrowthBetweenTwoSnapshots(t *testing.T) {
	p := poolBelow(t, "xfs", inMemory(t))
	v := mustCreate(t, p, "v", small)
	e := edit(t, p, v.ID)
	e.write(0, small)
	base := snap(t, p, "base", v.ID)
	_, err := p.Grow(t.Context(), v.ID, 3*small)
	must(t, err)
	grown := snap(t, p, "grown", v.ID)
	if got, size, sends := readBlocks(t, p, pool.BlocksRequest{Base: base, Target: grown}); len(got) > 0 || size != 3*small || sends != 1 {
		t.Errorf("a growth has changed %v of %d in %d messages, want nothing of %d in one", got, size, sends, 3*small)
	}
	e.write(2*small, block)
	target := snap(t, p, "target", v.ID)
	want := []pool.Range{{Start: 2 * small, Length: block}}
	if got, _, _ := readBlocks(t, p, pool.BlocksRequest{Base: base, Target: target}); !slices.Equal(got, want) {
		t.Errorf("changed are %v, want %v", got, want)
	}
	compare(t, p, base, target)
	compare(t, p, target, base) // the order of the two does not matter
	wantKind(t, "a start beyond the size", p.ReadBlocks(t.Context(), pool.BlocksRequest{Target: base, From: small + 1}, nil), fault.OutOfRange)
}

// C16: the snapshots of a clone are of the clone, also when it shares all blocks with the volume.
func TestSnapshotsOfTwoVolumesAreNotCompared(t *testing.T) {
	p := poolBelow(t, "xfs", inMemory(t))
	v := mustCreate(t, p, "v", small)
	edit(t, p, v.ID).write(0, small)
	base := snap(t, p, "base", v.ID)
	clone, err := p.Create(t.Context(), pool.NewVolume{Name: "clone", Size: small, From: pool.From{Snapshot: base}})
	must(t, err)
	target := snap(t, p, "target", clone.ID)
	err = p.ReadBlocks(t.Context(), pool.BlocksRequest{Base: base, Target: target}, nil)
	wantKind(t, "snapshots of a volume and of its clone", err, fault.InvalidArgument)
	if err == nil || !strings.Contains(err.Error(), string(v.ID)) || !strings.Contains(err.Error(), string(clone.ID)) {
		t.Errorf("ReadBlocks = %v, want both volumes named", err)
	}
	gone := pool.NewID()
	for what, req := range map[string]pool.BlocksRequest{"a base that is gone": {Base: gone, Target: base}, "a target that is gone": {Base: base, Target: gone}} {
		wantKind(t, what, p.ReadBlocks(t.Context(), req, nil), fault.NotFound)
	}
	compare(t, p, "", target)
	must(t, p.Delete(t.Context(), v.ID)) // the snapshots do not need it
	compare(t, p, "", base)
}

// C16: a delete truncates the image, so that two deleted snapshots would have the same blocks: none.
func TestSnapshotIsNotDeletedWhileItIsRead(t *testing.T) {
	p := poolBelow(t, "xfs", inMemory(t))
	v := mustCreate(t, p, "v", small)
	edit(t, p, v.ID).write(0, block)
	base := snap(t, p, "base", v.ID)
	edit(t, p, v.ID).write(0, block)
	target := snap(t, p, "target", v.ID)
	must(t, p.ReadBlocks(t.Context(), pool.BlocksRequest{Base: base, Target: target}, func(int64, []pool.Range) error {
		for _, id := range []pool.ID{base, target} {
			wantReason(t, "DeleteSnapshot meanwhile", p.DeleteSnapshot(t.Context(), id), fault.VolumeInUse)
		}
		// All else goes on: a restore, another snapshot, a second reader, the end of the volume.
		_, err := p.Create(t.Context(), pool.NewVolume{Name: "restored", Size: small, From: pool.From{Snapshot: base}})
		must(t, err)
		must(t, p.DeleteSnapshot(t.Context(), snap(t, p, "more", v.ID)))
		readBlocks(t, p, pool.BlocksRequest{Base: base, Target: target})
		return p.Delete(t.Context(), v.ID)
	}))
	for _, id := range []pool.ID{base, target} {
		must(t, p.DeleteSnapshot(t.Context(), id))
	}
}

func TestSnapshotThatAForeignProgramChangesIsNotReadToTheEnd(t *testing.T) {
	p := poolBelow(t, "xfs", inMemory(t))
	v := mustCreate(t, p, "v", small)
	e := edit(t, p, v.ID)
	for at := int64(0); at < small; at += 2 * block { // more than one message
		e.write(at, block)
	}
	base := snap(t, p, "base", v.ID)
	for _, id := range []pool.ID{base, snap(t, p, "target", v.ID)} {
		err := p.ReadBlocks(t.Context(), pool.BlocksRequest{Target: id}, func(int64, []pool.Range) error {
			f, err := os.OpenFile(p.file(pool.SnapshotRef(id), imageExt), os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt([]byte{1}, 0)
			return errors.Join(err, f.Close())
		})
		wantKind(t, "ReadBlocks", err, fault.Unavailable)
	}
}

// An answer of the kernel, and a message, have a limit; a reader that begins anywhere gets the rest.
func TestBlocksComeInMessagesAndFromAnyStart(t *testing.T) {
	p := poolBelow(t, "xfs", inMemory(t))
	v := mustCreate(t, p, "v", 2*small)
	e := edit(t, p, v.ID)
	base := snap(t, p, "base", v.ID)
	for at := int64(0); at < 2*small; at += 2 * block {
		e.write(at, block)
	}
	target := snap(t, p, "target", v.ID)
	all, _, sends := readBlocks(t, p, pool.BlocksRequest{Base: base, Target: target})
	if want := int(small / block); len(all) != want || sends != want/blocksPerSend {
		t.Fatalf("%d parts in %d messages, want %d in %d", len(all), sends, want, want/blocksPerSend)
	}
	for _, from := range []int64{0, 1, block - 1, block, 2*block - 1, 2 * block, small + 100, 2*small - 1, 2 * small} {
		var want []pool.Range
		for _, r := range all {
			if end := r.Start + r.Length; end > from {
				start := max(r.Start, from)
				want = append(want, pool.Range{Start: start, Length: end - start})
			}
		}
		for _, req := range []pool.BlocksRequest{{Target: target, From: from}, {Base: base, Target: target, From: from}} {
			if got, _, sends := readBlocks(t, p, req); !slices.Equal(got, want) || sends == 0 {
				t.Errorf("ReadBlocks(%+v) reports %d parts in %d messages, want %d", req, len(got), sends, len(want))
			}
		}
	}
	broken := errors.New("the caller has gone")
	if err := p.ReadBlocks(t.Context(), pool.BlocksRequest{Target: target}, func(int64, []pool.Range) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("ReadBlocks = %v, want the error of its caller", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := p.ReadBlocks(ctx, pool.BlocksRequest{Target: target}, func(int64, []pool.Range) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("ReadBlocks of a caller that has gone = %v", err)
	}
}

// A reader that is killed keeps no lock and no file.
func TestReaderOfBlocksThatIsKilledLeavesNothing(t *testing.T) {
	p := poolBelow(t, "xfs", inMemory(t))
	v := mustCreate(t, p, "v", small)
	edit(t, p, v.ID).write(0, small)
	base := snap(t, p, "base", v.ID)
	before := files(t, p)
	reader := command(t, "read", p.dir, base)
	reader.Env = append(reader.Env, tableEnv+"=")
	in, err := reader.StdinPipe()
	must(t, err)
	defer func() { _ = in.Close() }()
	out, err := reader.StdoutPipe()
	must(t, err)
	must(t, reader.Start())
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the reader has sent nothing: %v", err)
	}
	wantReason(t, "DeleteSnapshot", p.DeleteSnapshot(t.Context(), base), fault.VolumeInUse)
	must(t, reader.Process.Kill())
	_ = reader.Wait()
	if after := files(t, p); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("the pool held %q, now %q", before, after)
	}
	must(t, p.DeleteSnapshot(t.Context(), base))
}
