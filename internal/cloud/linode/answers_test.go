package linode

import (
	"context"
	"net/http"
	"testing"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
)

// The SDK by itself takes some of these answers for a success, repeats requests up to 1,000 times, and takes its address, the version of
// the API and whether it logs from the environment.
func TestNoHostileAnswerIsTakenForSuccess(t *testing.T) {
	t.Setenv("LINODE_URL", "https://elsewhere.example/path")
	t.Setenv("LINODE_API_VERSION", "v9")
	t.Setenv("LINODE_CA", "/nowhere")
	t.Setenv("LINODE_DEBUG", "1")
	const id, on = cloud.VolumeID("45"), cloud.NodeID("7")
	cloudtest.DisbelieveAnswers(t, func(t *testing.T, through http.RoundTripper) map[string]func(context.Context) error {
		t.Helper()
		c, err := New(t.Context(), Config{
			Config: block.Config{Token: func() (string, error) { return "token", nil }, Region: "us-ord", ClusterID: "one", SweepEvery: -1},
			Transport: cloudtest.RoundTripper(func(r *http.Request) (*http.Response, error) {
				if r.URL.Host != "api.linode.com" || r.URL.Path[:3] != "/v4" {
					t.Errorf("a request goes to %s", r.URL)
				}
				return through.RoundTrip(r)
			}),
		})
		cloudtest.Must(t, err)
		cloudtest.CloseAfter(t, c.Close)
		r := requests{c: c}
		write := func(do func(context.Context, *ops.Write) error) func(context.Context) error {
			return func(ctx context.Context) error { return do(ctx, ops.NewWrite(ctx, budget.Write)) }
		}
		volumes := func(list func(context.Context, *linodego.ListOptions) ([]volume, error)) func(context.Context) error {
			return func(ctx context.Context) error {
				_, _, err := readPage(ctx, listOf[volume]{call: list}, 1, perPage)
				return err
			}
		}
		return map[string]func(context.Context) error{
			"read a volume": func(ctx context.Context) error { _, err := r.Volume(ctx, id, budget.Read); return err },
			"read a Linode": func(ctx context.Context) error { _, err := r.Machine(ctx, on); return err },
			"attach":        write(func(ctx context.Context, w *ops.Write) error { _, _, err := r.Attach(ctx, w, id, on); return err }),
			"detach":        write(func(ctx context.Context, w *ops.Write) error { _, err := r.Detach(ctx, w, id, on); return err }),
			"resize": write(func(ctx context.Context, w *ops.Write) error {
				_, err := r.Resize(ctx, w, &block.Volume{Volume: cloud.Volume{ID: id}}, 20*cloud.GiB)
				return err
			}),
			"delete": write(func(ctx context.Context, w *ops.Write) error { _, err := r.Delete(ctx, w, id); return err }),
			"create": write(func(ctx context.Context, w *ops.Write) error {
				_, err := c.sendVolume(ctx, w, func(ctx context.Context) (*volume, error) { return c.sdk.CreateVolume(ctx, newVolume{Label: "a"}) })
				return err
			}),
			"copy": write(func(ctx context.Context, w *ops.Write) error {
				_, err := c.sendVolume(ctx, w, func(ctx context.Context) (*volume, error) { return c.sdk.CloneVolume(ctx, 45, "a") })
				return err
			}),
			"update": write(func(ctx context.Context, w *ops.Write) error {
				_, err := c.update(ctx, w, 45, linodego.VolumeUpdateOptions{Label: "a"})
				return err
			}),
			"list volumes": volumes(c.sdk.ListVolumes),
			"volumes of a Linode": volumes(func(ctx context.Context, opts *linodego.ListOptions) ([]volume, error) {
				return c.sdk.ListInstanceVolumes(ctx, 7, opts)
			}),
			"disks of a Linode": func(ctx context.Context) error {
				_, _, err := readPage(ctx, listOf[linodego.InstanceDisk]{call: func(ctx context.Context, opts *linodego.ListOptions) ([]linodego.InstanceDisk, error) {
					return c.sdk.ListInstanceDisks(ctx, 7, opts)
				}}, 1, perPage)
				return err
			},
			"list regions": func(ctx context.Context) error { _, err := c.readRegions(ctx, struct{}{}); return err },
			"read prices":  func(ctx context.Context) error { _, _, err := c.Prices(ctx); return err },
			"list events":  func(ctx context.Context) error { _, err := c.moving(ctx); return err },
			"read locks":   func(ctx context.Context) error { _, err := c.locks(ctx, id); return err },
		}
	}, func(call, answer string) bool {
		return answer == "an empty object" && (call == "detach" || call == "delete")
	})
}
