package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
)

// lateDisk is a disk of a cloud that shows its growth at a time.
type lateDisk struct {
	device.Resolver

	before, after int64
	at            time.Time
}

func (d lateDisk) Grow(context.Context, device.Spec, int64) (int64, error) {
	if time.Now().Before(d.at) {
		return d.before, nil
	}
	return d.after, nil
}

// E7: a disk that shows its growth a moment after the cloud has grown it is expanded by the same call.
func TestExpandWaitsUntilTheDiskShowsItsGrowth(t *testing.T) {
	for name, tc := range map[string]struct {
		late time.Duration
		want error
	}{
		"it shows it":                 {0, nil},
		"a moment later":              {700 * time.Millisecond, nil},
		"seconds later":               {4 * time.Second, nil},
		"only after it was detached":  {time.Hour, fault.GrowDetach},
		"later than a call may wait":  {10 * time.Second, fault.GrowDetach},
		"it has the size before that": {-time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				s := &Server{sizeStep: 1, devices: lateDisk{before: 10, after: 20, at: begun.Add(tc.late)}}
				size, err := s.growDevice(t.Context(), device.Spec{Volume: "v"}, 10, &csi.CapacityRange{RequiredBytes: 20})
				if !errors.Is(err, tc.want) || err == nil && size != 20 {
					t.Errorf("growDevice = %d, %v, want 20 bytes or %v", size, err, tc.want)
				}
				// The mount of the next pod waits for the call.
				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("growDevice took %s, want at most 5 s", took)
				}
			})
		})
	}
}
