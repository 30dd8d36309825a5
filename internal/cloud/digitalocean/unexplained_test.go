package digitalocean_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// P1: a refusal that the state does not explain, because it is about something that the API does not show, is
// answered after a few attempts with the cloud's words. Otherwise a few such volumes would spend the whole API
// budget on asking the same again until their callers give up.
func TestARefusalThatNothingExplainsIsNotRepeatedForLong(t *testing.T) {
	tests := map[string]struct {
		method string
		call   func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error
	}{
		"attach": {http.MethodPost, func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			_, err := c.Attach(ctx, id, node2)
			return err
		}},
		"detach": {http.MethodPost, func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			return c.Detach(ctx, id, node1)
		}},
		"delete": {http.MethodDelete, func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			return c.DeleteVolume(ctx, id)
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{})
				c := open(t, account)
				id := origin(t, c)
				if name == "detach" {
					_, err := c.Attach(t.Context(), id, node1)
					must(t, err)
				}
				refusal := account.Arm(emulator.Fault{Method: tc.method, Effect: faults.Effect{Status: 422, Message: "the moon is full"}})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				want(t, tc.call(ctx, c, id), fault.Unavailable, "the moon is full")
				if n := refusal.Hits(); ctx.Err() != nil || n < 2 || n > 5 {
					t.Errorf("it was asked for %d times (%v), want a few", n, ctx.Err())
				}
			})
		})
	}
}
