package block

import (
	"context"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// finding is a cloud that finds its volume, and counts reads.
type finding struct {
	growing

	found       *Volume
	why         error
	gone        bool
	unread      error // the answer to a read of the volume
	read, asked int
}

func (f *finding) Find(context.Context, string) (*Volume, error) { return f.found, f.why }

func (f *finding) Volume(context.Context, cloud.VolumeID, budget.Priority) (*Volume, error) {
	f.read++
	if f.unread != nil {
		return nil, f.unread
	}
	if f.gone {
		return nil, nil //nolint:nilnil // "there is none" is an answer here
	}
	return f.now(), nil
}

func (f *finding) Running(ctx context.Context, object string) ([]ops.Operation, error) {
	f.asked++
	return f.growing.Running(ctx, object)
}

// C5: a volume is found when nothing is under way with it. It is read by its id, because the list that showed it may be older than its
// deletion (failure C1).
func TestAVolumeIsFoundWhenItIsReady(t *testing.T) {
	for name, tc := range map[string]struct {
		shows bool
		grows time.Duration
		edit  func(f *finding)
		want  error
		reads int // of the volume
		asks  int // for its operations
	}{
		"a volume that shows that nothing runs": {shows: true, reads: 1},
		"a volume that shows that it grows":     {shows: true, grows: 5 * time.Second, reads: 1, asks: 2},
		"nothing runs, and it does not show":    {reads: 1, asks: 2},
		"a growth runs, and it does not show":   {grows: 5 * time.Second, reads: 1, asks: 2},
		"the read fails":                        {edit: func(f *finding) { f.why = fault.NotFound }, want: fault.NotFound},
		"it is gone meanwhile":                  {edit: func(f *finding) { f.gone = true }, want: fault.Unavailable, reads: 1, asks: 2},
		"it is gone, and the list is older":     {shows: true, edit: func(f *finding) { f.gone = true }, want: fault.Unavailable, reads: 1},
		// A final code would end the creation in the external-provisioner, and the volume would stay.
		"the second read is denied": {edit: func(f *finding) { f.unread = fault.Denied }, want: fault.Unavailable, reads: 1, asks: 1},
		"it is broken":              {shows: true, edit: func(f *finding) { f.vol = *with(at(), hindered) }, want: errDamaged, reads: 1},
		"it is broken in the end":   {edit: func(f *finding) { f.vol = *with(at(), hindered) }, want: errDamaged, reads: 1, asks: 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := &finding{growing: growing{vol: *at(), fails: true, shows: tc.shows}}
			simulated(t, f, Traits{ShowsChanges: tc.shows}, func(t *testing.T, b *Verbs) {
				began := time.Now()
				if tc.grows > 0 {
					f.until = began.Add(tc.grows)
				}
				f.found = f.now()
				if tc.edit != nil {
					tc.edit(f)
				}
				vol, err := b.FindVolume(t.Context(), "a")
				if fault.Of(err) != fault.Of(tc.want) || fault.ReasonOf(err) != fault.ReasonOf(tc.want) {
					t.Errorf("FindVolume = %v, want %v", err, tc.want)
				}
				if err == nil && (vol.Size != 10*cloud.GiB || time.Since(began) < tc.grows) {
					t.Errorf("FindVolume found it with %s after %s, want 10 GiB after the failed growth", vol.Size, time.Since(began))
				}
				if f.read != tc.reads || f.asked != tc.asks {
					t.Errorf("it was read %d times and its operations %d times, want %d and %d", f.read, f.asked, tc.reads, tc.asks)
				}
			})
		})
	}
}

func TestACacheIsBounded(t *testing.T) {
	var c Cache[int, string]
	if _, known := c.Get(1); known {
		t.Error("an empty cache has an entry")
	}
	if c.Put(1, "a") || !c.Put(1, "b") {
		t.Error("Put reports the entry before it wrongly")
	}
	if v, known := c.Get(1); v != "b" || !known {
		t.Errorf("Get = %q, %v, want b", v, known)
	}
	c.Invalidate(1)
	if _, known := c.Get(1); known {
		t.Error("an entry is there after Invalidate")
	}
	for n := range 3 * maxCached {
		c.Put(n, "x")
	}
	if len(c.of) > maxCached {
		t.Errorf("it has %d entries, want %d at most", len(c.of), maxCached)
	}
	if _, known := c.Get(3*maxCached - 1); !known {
		t.Error("the newest entry is lost")
	}
}
