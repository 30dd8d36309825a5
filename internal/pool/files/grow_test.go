package files

import (
	"context"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// E3: a growth to the current size or less changes nothing, and the file never shrinks.
func TestGrow(t *testing.T) {
	p := openPool(t, t.TempDir())
	r := mustCreate(t, p, "a", 2*small)
	tests := []struct {
		name       string
		size, want int64
		kind       fault.Kind
	}{
		{"to more", 3 * small, 3 * small, fault.None},
		{"to the same again", 3 * small, 3 * small, fault.None},
		{"never to less", small, 3 * small, fault.None},
		{"to nothing", 0, 3 * small, fault.None},
		{"rounded up to the step", 3*small + 1, 3*small + pool.SizeStep, fault.None},
		{"beyond what there is", 21 * small, 0, fault.OutOfRange},
		{"beyond all files", 1<<63 - 1, 0, fault.OutOfRange},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			before, err := p.Get(t.Context(), r.ID)
			must(t, err)
			got, err := p.Grow(t.Context(), r.ID, tc.size)
			wantKind(t, "Grow", err, tc.kind)
			after, getErr := p.Get(t.Context(), r.ID)
			must(t, getErr)
			if got != tc.want {
				t.Errorf("Grow = %d, want %d", got, tc.want)
			}
			if err != nil && (after.Size != before.Size || after.Record.GrowTo != 0 || after.Allocated != before.Allocated) {
				t.Errorf("a refused Grow changed %+v to %+v", before, after)
			}
			if err == nil && (after.Size != tc.want || after.Allocated < tc.want || after.Record.Size != tc.want) {
				t.Errorf("after Grow the volume is %+v", after)
			}
		})
	}
	_, err := p.Grow(t.Context(), pool.NewID(), small)
	wantKind(t, "Grow of no volume", err, fault.NotFound)
}

func TestGrowthThatWasBrokenOffIsUndone(t *testing.T) {
	p := openPool(t, t.TempDir())
	r := mustCreate(t, p, "a", small)
	free, err := p.Free(t.Context())
	must(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.disk.before = func(step string) {
		if step == "sync folder" {
			cancel()
		}
	}
	if _, err = p.Grow(ctx, r.ID, 5*small); !errors.Is(err, context.Canceled) {
		t.Fatalf("Grow = %v, want %v", err, context.Canceled)
	}
	p.disk.before = nil
	if now, err := p.Free(t.Context()); err != nil || now != free {
		t.Errorf("Free after a growth that was broken off = %d, %v, want %d", now, err, free)
	}
	must(t, p.Use(t.Context(), r.ID, func(f *os.File, now pool.Record) error {
		if st, err := f.Stat(); err != nil || st.Size() != small || now.Size != small || now.GrowTo != 0 {
			t.Errorf("Use shows %+v, %v, %+v, want it as it was", st, err, now)
		}
		return nil
	}))
}

// Where it cannot be undone, on a full disk, the reservation stays and the next Use continues it.
func TestGrowthThatCannotBeUndoneStaysReserved(t *testing.T) {
	p := openPool(t, t.TempDir())
	r := mustCreate(t, p, "a", small)
	free, err := p.Free(t.Context())
	must(t, err)
	r.GrowTo = 5 * small
	must(t, p.writeRecord(pool.VolumeRef(r.ID), r))
	blocker := p.file(pool.VolumeRef(r.ID), recordExt+newExt)
	must(t, os.MkdirAll(blocker+"/x", 0o700)) // no record can be written
	if u, err := p.measure(mustRecover(t, p)); err != nil || u.Free != free-4*small {
		t.Errorf("measure = %+v, %v, want %d free", u, err, free-4*small)
	}
	must(t, os.RemoveAll(blocker))
	if now, err := p.Free(t.Context()); err != nil || now != free {
		t.Errorf("Free = %d, %v, want %d", now, err, free)
	}
}

func mustRecover(t *testing.T, p *Pool) []pool.Entry {
	t.Helper()
	entries, err := p.recover()
	must(t, err)
	return entries
}

func TestLostReservationIsCountedAndRestored(t *testing.T) {
	p := openPool(t, t.TempDir())
	r := mustCreate(t, p, "a", 10*small)
	free, err := p.Free(t.Context())
	must(t, err)
	f, err := os.OpenFile(p.ImagePath(r.ID), os.O_RDWR, 0)
	must(t, err)
	for at := small; at < 9*small; at += small / 64 { // more holes than the kernel tells of in one answer
		must(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, small/64-4096))
	}
	must(t, f.Close())

	if e, err := p.Get(t.Context(), r.ID); err != nil || e.Allocated > 3*small {
		t.Fatalf("the hole is not there: %+v, %v", e, err)
	}
	// The blocks of a fragmented file's own extent tree count too.
	if now, err := p.Free(t.Context()); err != nil || max(now-free, free-now) >= small {
		t.Errorf("Free with a hole in a volume = %d, %v, want nearly %d", now, err, free)
	}
	_, err = p.Create(t.Context(), pool.NewVolume{Name: "b", Size: free + pool.SizeStep})
	wantKind(t, "Create in the space of the hole", err, fault.Exhausted)
	must(t, p.Reserve(t.Context(), r.ID))
	if e, err := p.Get(t.Context(), r.ID); err != nil || e.Allocated < 10*small {
		t.Errorf("after Reserve the volume is %+v, %v", e, err)
	}
}
