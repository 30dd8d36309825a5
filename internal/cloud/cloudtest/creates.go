package cloudtest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// creates records which volumes were returned for the creates of each name, by any controller.
type creates struct {
	mu  sync.Mutex
	ids map[string][]cloud.VolumeID
}

// of returns a controller whose results are recorded.
func (cs *creates) of(c cloud.Cloud) cloud.Cloud { return creating{c, cs} }

type creating struct {
	cloud.Cloud
	*creates
}

func (c creating) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	vol, err := c.Cloud.CreateVolume(ctx, req)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ids[req.Name] = append(c.ids[req.Name], vol.ID)
	}
	return vol, err
}

// hold fails the test unless the creates of each name returned the same volume, which exists: each caller uses the volume of its
// answer.
func (cs *creates) hold(t *testing.T, c cloud.Cloud) {
	t.Helper()
	for name, ids := range cs.ids {
		if len(slices.Compact(slices.Clone(ids))) > 1 {
			t.Errorf("the creates of %q were answered with the volumes %v, want one", name, ids)
		}
		if _, err := c.GetVolume(t.Context(), ids[0]); err != nil {
			t.Errorf("a create of %q was answered with volume %s: %v", name, ids[0], err)
		}
	}
}
