package sim

import (
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
)

// resizeTimeout is --timeout of the resizer.
const resizeTimeout = 2 * time.Minute

// resize is external-resizer's life with one claim.
func (a *actor) resize(c *claim) {
	s := a.s
	failures := 0
	for s.until(func() bool { return c.gone || c.deleting || c.pv != nil && c.goal > c.pv.size && c.wanted }) {
		if !a.think() || get(s, func() bool { return c.gone || c.deleting }) {
			return
		}
		goal := get(s, func() cloud.Bytes { return c.goal })
		req := &csi.ControllerExpandVolumeRequest{
			VolumeId: string(c.pv.id), CapacityRange: &csi.CapacityRange{RequiredBytes: int64(goal)}, VolumeCapability: capability(),
		}
		err := a.call(plan.Resizer, "ControllerExpandVolume", c.name, resizeTimeout,
			calling(csi.ControllerClient.ControllerExpandVolume, req),
			func(m proto.Message, mine bool) {
				size := cloud.Bytes(m.(*csi.ControllerExpandVolumeResponse).GetCapacityBytes())
				s.checkGrown(c, goal, size)
				if mine {
					c.pv.size = max(c.pv.size, size)
				}
			})
		if err == nil {
			failures = 0
			continue
		}
		failures++
		a.backoff(failures, func() bool { return !c.wanted || c.deleting })
	}
}
