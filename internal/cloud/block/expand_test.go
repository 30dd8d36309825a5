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

// growing is a cloud with one volume, which another controller's growth shows as larger until it fails or ends.
type growing struct {
	API // what is not asked for

	vol     Volume
	until   time.Time     // when that growth ends
	again   time.Duration // how long the next one takes, which begins then
	refuses bool          // the first request, because that growth, of 5 seconds, has just begun
	fails   bool
	shows   bool // that it runs
	resized int
}

func (g *growing) now() *Volume {
	v := g.vol
	switch under := time.Now().Before(g.until.Add(g.again)); {
	case under:
		v.Size = 20 * cloud.GiB
		if g.shows {
			v.Hindered = fault.Busy
		}
	case !g.until.IsZero() && !g.fails:
		v.Size = 20 * cloud.GiB
	}
	return &v
}

func (g *growing) Volume(context.Context, cloud.VolumeID, budget.Priority) (*Volume, error) {
	return g.now(), nil
}

func (g *growing) Resize(_ context.Context, _ *ops.Write, _ *Volume, size cloud.Bytes) (string, error) {
	if g.refuses {
		g.refuses, g.until = false, time.Now().Add(5*time.Second)
		return "", fault.Busy
	}
	g.resized++
	g.vol.Size = size
	return "", nil
}

func (g *growing) Running(_ context.Context, object string) ([]ops.Operation, error) {
	switch now := time.Now(); {
	case now.Before(g.until):
		return []ops.Operation{{Object: object, ID: "growth"}}, nil
	case now.Before(g.until.Add(g.again)):
		return []ops.Operation{{Object: object, ID: "next growth"}}, nil
	}
	return nil, nil
}

func (g *growing) Outcome(_ context.Context, op ops.Operation) (ops.Outcome, error) {
	until := g.until
	if op.ID == "next growth" {
		until = until.Add(g.again)
	}
	return ops.Outcome{Done: !time.Now().Before(until)}, nil
}

// C5: a size that shows while a growth is under way may be taken back, so the answer waits for its end.
func TestASizeThatMayBeTakenBackIsNotAnswered(t *testing.T) {
	for name, shows := range map[string]bool{"the volume shows that it grows": true, "the volume shows its size only": false} {
		for _, fails := range []bool{false, true} {
			g := &growing{vol: *at(), fails: fails, shows: shows}
			simulated(t, g, Traits{ShowsChanges: shows}, func(t *testing.T, b *Verbs) {
				began := time.Now()
				g.until = began.Add(5 * time.Second)
				exp, err := b.ExpandVolume(t.Context(), "v", 20*cloud.GiB)
				if err != nil || exp.Size != 20*cloud.GiB || time.Since(began) < 5*time.Second {
					t.Errorf("%s: ExpandVolume = %+v, %v after %s, want it when the other growth has ended", name, exp, err, time.Since(began))
				}
				if wanted := map[bool]int{true: 1}[fails]; g.resized != wanted {
					t.Errorf("%s: it was resized %d times, want %d", name, g.resized, wanted)
				}
			})
		}
	}
}

// C5: another controller may begin a growth between the end of the last one and the read, and that may fail too.
func TestOneGrowthAfterAnother(t *testing.T) {
	for name, g := range map[string]*growing{
		"the volume shows that it grows":    {shows: true},
		"the volume shows its size only":    {},
		"the request met the first of them": {refuses: true},
	} {
		g.vol, g.fails, g.again = *at(), true, 5*time.Second
		simulated(t, g, Traits{ShowsChanges: g.shows}, func(t *testing.T, b *Verbs) {
			began := time.Now()
			if !g.refuses {
				g.until = began.Add(5 * time.Second)
			}
			exp, err := b.ExpandVolume(t.Context(), "v", 20*cloud.GiB)
			if err != nil || exp.Size != 20*cloud.GiB || g.resized != 1 || time.Since(began) < 10*time.Second {
				t.Errorf("%s: ExpandVolume = %+v, %v after %s and %d requests, want its own growth when both have failed", name, exp, err, time.Since(began), g.resized)
			}
		})
	}
}

// A volume that the cloud calls broken may show the size of a growth that has failed.
func TestTheSizeOfABrokenVolumeIsNotAnswered(t *testing.T) {
	g := &growing{vol: *with(at(), hindered)}
	simulated(t, g, Traits{ShowsChanges: true}, func(t *testing.T, b *Verbs) {
		if exp, err := b.ExpandVolume(t.Context(), "v", 10*cloud.GiB); fault.Of(err) != fault.Of(errDamaged) || g.resized != 0 {
			t.Errorf("ExpandVolume = %+v, %v after %d requests, want a refusal and none", exp, err, g.resized)
		}
	})
}
