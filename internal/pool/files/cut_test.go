package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/extents"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/tracer"
)

// cutRig is where the cuts are made.
type cutRig struct {
	// dir makes an empty folder for a pool.
	dir func(t *testing.T) string
	// count, if set, says how many bytes of the disk all files occupy, and how many the filesystem has
	// taken for itself. Then the pool believes the filesystem about its free space.
	count func(t *testing.T) (data, other int64)
	// one: all pools lie on one disk, one after the other.
	one bool
}

func (c cutRig) open(t *testing.T, dir string) *Pool {
	t.Helper()
	p := openPool(t, dir)
	if c.count != nil {
		p.disk.statfs = statfs
	}
	return p
}

// fillVolume writes some bytes at the start, in the middle and at the end of a volume.
func fillVolume(t *testing.T, p *Pool, id pool.ID, b byte) {
	t.Helper()
	f, err := os.OpenFile(p.ImagePath(id), os.O_WRONLY, 0)
	must(t, err)
	for _, at := range []int64{0, small / 2, small - 64<<10} {
		_, err := f.WriteAt([]byte(strings.Repeat(string(rune(b)), 64<<10)), at)
		must(t, err)
	}
	must(t, f.Sync())
	must(t, f.Close())
}

// picture is everything in a pool as lines of text, and how many files that must be.
func picture(t *testing.T, p *Pool) (lines []string, files int) {
	t.Helper()
	for _, list := range []func(context.Context) ([]pool.Entry, error){p.List, p.ListSnapshots} {
		entries, err := list(t.Context())
		must(t, err)
		for _, e := range entries {
			sum := checksum(t, p.file(e.Ref(), imageExt))
			r := e.Record
			lines = append(lines, fmt.Sprintf("snapshot=%v %s %q size=%d grow=%d state=%s from=%q of=%q sum=%x",
				e.Snapshot, e.Kind, r.Name, e.Size, r.GrowTo, r.State, r.Source, r.Volume, sum))
			files += 2
		}
	}
	return lines, files
}

// checksum reads a file piece by piece: all of it at once costs the race detector more than anything else.
func checksum(t *testing.T, name string) uint32 {
	t.Helper()
	f, err := os.Open(name)
	must(t, err)
	defer func() { _ = f.Close() }()
	sum := crc32.NewIEEE()
	_, err = io.CopyBuffer(sum, struct{ io.Reader }{f}, make([]byte, 256<<10))
	must(t, err)
	return sum.Sum32()
}

// operation is a change of the pool that is cut.
type operation struct {
	name string
	do   func(ctx context.Context, p *Pool, a, b, snap pool.ID) error
	// done is what the same call answers when it was done already.
	done  fault.Kind
	least int
	// copies: it needs a pool with reflinks.
	copies bool
}

var operations = []operation{
	{name: "open", least: 5, do: func(context.Context, *Pool, pool.ID, pool.ID, pool.ID) error { return nil }},
	{name: "create", least: 5, done: fault.Conflict, do: func(ctx context.Context, p *Pool, _, _, _ pool.ID) error {
		_, err := p.Create(ctx, pool.NewVolume{Name: "new", Size: 2 * small})
		return err
	}},
	{name: "grow", least: 4, do: func(ctx context.Context, p *Pool, a, _, _ pool.ID) error {
		_, err := p.Grow(ctx, a, 3*small)
		return err
	}},
	{name: "delete", least: 4, done: fault.NotFound, do: func(ctx context.Context, p *Pool, a, _, _ pool.ID) error {
		return p.Delete(ctx, a)
	}},
	{name: "snapshot", least: 6, copies: true, done: fault.Conflict, do: func(ctx context.Context, p *Pool, a, _, _ pool.ID) error {
		_, err := p.CreateSnapshot(ctx, pool.NewSnapshot{Name: "new", Volume: a})
		return err
	}},
	{name: "delete snapshot", least: 4, copies: true, done: fault.NotFound, do: func(ctx context.Context, p *Pool, _, _, snap pool.ID) error {
		return p.DeleteSnapshot(ctx, snap)
	}},
	{name: "clone", least: 6, copies: true, done: fault.Conflict, do: func(ctx context.Context, p *Pool, a, _, _ pool.ID) error {
		_, err := p.Create(ctx, pool.NewVolume{Name: "new", Size: small, From: pool.From{Volume: a}})
		return err
	}},
	{name: "restore to a larger size", least: 6, copies: true, done: fault.Conflict, do: func(ctx context.Context, p *Pool, _, _, snap pool.ID) error {
		_, err := p.Create(ctx, pool.NewVolume{Name: "new", Size: 3 * small, From: pool.From{Snapshot: snap}})
		return err
	}},
}

// C1, C2: the test kills a process before each of the system calls with which it changes the pool, and checks what the
// next process finds.
func TestCutAtEverySystemCall(t *testing.T) {
	cutEverywhere(t, cutRig{dir: func(t *testing.T) string { return t.TempDir() }})
}

func cutEverywhere(t *testing.T, rig cutRig) {
	opening := newCut(t, rig, operations[0], rig.dir(t)).run(0)
	copies := rig.open(t, rig.dir(t)).reflink
	for _, op := range operations {
		if op.copies && !copies {
			continue
		}
		t.Run(op.name, func(t *testing.T) {
			if !rig.one {
				t.Parallel() // most of the time goes into waiting for the disk
			}
			dir := rig.dir(t)
			whole := newCut(t, rig, op, dir)
			first, last := opening.Calls, whole.run(0).Calls
			if op.name == "open" {
				first = 1
			}
			after := whole.read()
			t.Logf("cut at %d system calls", last-first+1)
			if last-first < op.least {
				t.Errorf("%s makes only %d system calls; are they seen?", op.name, last-first)
			}
			for at := first; at <= last; at++ {
				c := newCut(t, rig, op, rig.dir(t))
				c.run(at)
				c.check(at, after)
			}
		})
	}
}

// cut is a pool with two volumes and a snapshot, on which an operation is run once.
type cut struct {
	*testing.T
	rig        cutRig
	op         operation
	dir        string
	a, b, snap pool.ID
	before     state
}

// state is what must be the same in a pool that nothing happened to.
type state struct {
	lines []string
	// In bytes: what volumes may still come to need, what is free, and what all files occupy. What a real
	// filesystem takes for itself counts as free.
	reserved, free, data int64
}

// withoutForks keeps parallel tests from starting a process: between fork and exec the child
// has copies of this process's descriptors, and with them the flocks of images.
func withoutForks() (again func()) {
	syscall.ForkLock.RLock()
	return syscall.ForkLock.RUnlock
}

func newCut(t *testing.T, rig cutRig, op operation, dir string) *cut {
	t.Helper()
	defer withoutForks()()
	c := &cut{T: t, rig: rig, op: op, dir: dir}
	p := rig.open(t, dir)
	c.a, c.b = mustCreate(t, p, "a", small).ID, mustCreate(t, p, "b", small).ID
	fillVolume(t, p, c.a, 'a')
	fillVolume(t, p, c.b, 'b')
	if p.reflink {
		made, err := p.CreateSnapshot(t.Context(), pool.NewSnapshot{Name: "old", Volume: c.a})
		must(t, err)
		c.snap = made.ID
		fillVolume(t, p, c.a, 'A')
	}
	c.before = c.read()
	return c
}

// read opens the pool again, as the next process does, and returns its state.
func (c *cut) read() state {
	c.Helper()
	p := c.rig.open(c.T, c.dir)
	lines, count := picture(c.T, p)
	for i := range lines {
		// The ids differ from pool to pool.
		lines[i] = strings.NewReplacer(string(c.a), "A", string(c.b), "B", cmp.Or(string(c.snap), "none"), "S").Replace(lines[i])
	}
	slices.Sort(lines)
	if left := files(c.T, p); len(left) != count {
		c.Errorf("the folders hold %q, and the lists only\n%s", left, strings.Join(lines, "\n"))
	}
	entries := mustRecover(c.T, p)
	used, err := p.measure(entries)
	must(c.T, err)
	reserved := used.Reserved
	now := state{lines: lines, reserved: reserved}
	other := int64(0)
	if c.rig.count != nil {
		now.data, other = c.rig.count(c.T)
		if data, reservation := known(c.T, p, entries); now.data != data || reserved != reservation {
			c.Errorf("the files occupy %d bytes, and those that the pool knows %d; it reserves %d bytes, and should %d", now.data, data, reserved, reservation)
		}
	}
	now.free, err = p.Free(c.Context())
	must(c.T, err)
	now.free += other
	return now
}

// known returns what a pool on a real disk occupies if it has nothing but volumes that are reserved in full,
// the blocks of its snapshots, and one block for each record; and the reservations of its volumes, counted
// block by block.
func known(t *testing.T, p *Pool, entries []pool.Entry) (data, reservation int64) {
	t.Helper()
	record := func(name string) {
		f, err := os.Open(name)
		must(t, err)
		mappings, _, err := extents.Of(f, 1)
		must(t, errors.Join(err, f.Close()))
		for _, m := range mappings {
			data += m.Length
		}
	}
	const block = 4096
	images := map[int64]int64{} // of each block
	record(p.path(metaFile))
	for _, e := range entries {
		record(p.file(e.Ref(), recordExt))
		missing := e.Size
		must(t, eachExtent(p.file(e.Ref(), imageExt), e.Size, func(m extents.Mapping) error {
			m.Length = min(m.Length, e.Size-m.Start)
			missing -= m.Length
			for at := m.Physical; at < m.Physical+m.Length; at += block {
				images[at]++
			}
			return nil
		}))
		if !e.Snapshot {
			reservation += missing
		}
	}
	for _, n := range images {
		data += block
		reservation += block * (n - 1)
	}
	return data, reservation
}

// run does the operation in another process, killed at this system call.
func (c *cut) run(at int) tracer.Result {
	c.Helper()
	cmd := command(c.T, cutPrefix+c.op.name, c.dir, pool.ID(strings.Join([]string{string(c.a), string(c.b), string(c.snap)}, ",")))
	if c.rig.count != nil {
		cmd.Env = append(cmd.Env, sizeEnv+"=1")
	}
	result, err := tracer.Run(cmd, at, tracer.ChangesBelow(c.dir))
	if err != nil || result.Code != 0 || result.Killed != (at > 0) {
		c.Fatalf("%s cut at call %d: %+v, %v", c.op.name, at, result, err)
	}
	return result
}

// cutPrefix comes before the name of an operation that another process does to be cut.
const cutPrefix = "cut "

// cutChild is the operation in that process.
func cutChild(ctx context.Context, p *Pool, what string, ids []string) error {
	for _, op := range operations {
		if op.name == what {
			return op.do(ctx, p, pool.ID(ids[0]), pool.ID(ids[1]), pool.ID(ids[2]))
		}
	}
	return fmt.Errorf("no operation %q", what)
}

func (s state) same(as state) bool {
	return slices.Equal(s.lines, as.lines) && s.reserved == as.reserved && s.free == as.free && s.data == as.data
}

func (c *cut) check(at int, after state) {
	c.Helper()
	defer withoutForks()()
	if now := c.read(); !now.same(c.before) && !now.same(after) {
		c.Errorf("killed before call %d, the pool is between the states:\n%s\nbefore:\n%s\nafter:\n%s", at, now, c.before, after)
	}
	p := c.rig.open(c.T, c.dir)
	if err := c.op.do(c.Context(), p, c.a, c.b, c.snap); err != nil && !errors.Is(err, c.op.done) {
		c.Errorf("killed before call %d, the same call again = %v", at, err)
	}
	if now := c.read(); !now.same(after) {
		c.Errorf("killed before call %d and done again:\n%s\nwant:\n%s", at, now, after)
	}
}

func (s state) String() string {
	return fmt.Sprintf("%s\nreserved=%d free=%d data=%d", strings.Join(s.lines, "\n"), s.reserved, s.free, s.data)
}
