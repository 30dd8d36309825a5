package digitalocean

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
)

// The SDK by itself takes some of these answers for a success.
func TestNoHostileAnswerIsTakenForSuccess(t *testing.T) {
	const id, snap, on = cloud.VolumeID("11111111-1111-1111-1111-111111111111"), cloud.SnapshotID("22222222-2222-2222-2222-222222222222"), cloud.NodeID("101")
	cloudtest.DisbelieveAnswers(t, func(t *testing.T, through http.RoundTripper) map[string]func(context.Context) error {
		t.Helper()
		c, err := New(t.Context(), Config{
			Config:    block.Config{Token: func() (string, error) { return "token", nil }, Region: "fra1", ClusterID: "one", SweepEvery: -1},
			Transport: through,
		})
		cloudtest.Must(t, err)
		cloudtest.CloseAfter(t, c.Close)
		c.names.Put(id, "a")
		r := requests{c}
		write := func(do func(context.Context, *ops.Write) error) func(context.Context) error {
			return func(ctx context.Context) error { return do(ctx, ops.NewWrite(ctx, budget.Write)) }
		}
		calls := map[string]func(context.Context) error{
			"read a volume":  func(ctx context.Context) error { _, err := r.Volume(ctx, id, budget.Read); return err },
			"read a droplet": func(ctx context.Context) error { _, err := r.Machine(ctx, on); return err },
			"attach":         write(func(ctx context.Context, w *ops.Write) error { _, _, err := r.Attach(ctx, w, id, on); return err }),
			"detach":         write(func(ctx context.Context, w *ops.Write) error { _, err := r.Detach(ctx, w, id, on); return err }),
			"resize": write(func(ctx context.Context, w *ops.Write) error {
				_, err := r.Resize(ctx, w, &block.Volume{Volume: cloud.Volume{ID: id, Zone: "fra1"}}, cloud.GiB)
				return err
			}),
			"delete": write(func(ctx context.Context, w *ops.Write) error { _, err := r.Delete(ctx, w, id); return err }),
			"create": func(ctx context.Context) error {
				_, err := c.createOnce(ctx, "create", godo.VolumeCreateRequest{Name: "a"})
				return err
			},
			"list volumes": func(ctx context.Context) error {
				_, _, err := readPage(ctx, c.volumes("list", "", budget.Read), 1, perPage)
				return err
			},
			"list regions":        func(ctx context.Context) error { _, err := c.readRegions(ctx, struct{}{}); return err },
			"list snapshots":      func(ctx context.Context) error { _, err := c.allSnapshots(ctx, budget.Read); return err },
			"snapshots of one":    func(ctx context.Context) error { _, err := c.snapshotsOf(ctx, id); return err },
			"read a snapshot":     func(ctx context.Context) error { _, err := c.readSnapshot(ctx, snap); return err },
			"make a snapshot":     func(ctx context.Context) error { _, err := c.snapshotOnce(ctx, id, "s", nil); return err },
			"delete a snapshot":   func(ctx context.Context) error { return c.DeleteSnapshot(ctx, snap) },
			"put a tag":           func(ctx context.Context) error { return c.changeTag(ctx, id, true, "a") },
			"remove a tag":        func(ctx context.Context) error { return c.changeTag(ctx, id, false, "a") },
			"create a tag":        func(ctx context.Context) error { return c.createTag(ctx, "a") },
			"actions of a volume": func(ctx context.Context) error { _, err := tracker{c}.Running(ctx, c.VolumeKey(id)); return err },
			"newest actions": func(ctx context.Context) error {
				_, _, err := readPage(ctx, listOf[action]{key: "actions", call: c.sdk.Actions.List}, 1, perPage)
				return err
			},
			"read an action": func(ctx context.Context) error {
				out, err := tracker{c}.Outcome(ctx, ops.Operation{ID: "1", Began: time.Now()})
				if err == nil && out.Err != nil {
					err = out.Err
				}
				return err
			},
		}
		for _, path := range checked {
			calls["check "+path] = func(ctx context.Context) error { return c.check(ctx, path) }
		}
		return calls
	}, nil)
}
