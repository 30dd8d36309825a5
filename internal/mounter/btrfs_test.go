package mounter

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTheOnlyDeviceOfABtrfs: the highest device id stands on the disk, so a crafted one may be any number.
func TestTheOnlyDeviceOfABtrfs(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tests := map[string]struct {
		ctx      context.Context
		highest  uint64
		only     uint64
		ok       bool
		maxTries int
	}{
		"the first":                          {t.Context(), 1, 1, true, 1},
		"a lower one after a replacement":    {t.Context(), 5, 3, true, 3},
		"the last that is tried":             {t.Context(), 5000, 5000 - 1023, true, 1024},
		"too far below the highest":          {t.Context(), 5000, 5000 - 1024, false, 1024},
		"none below a highest that is crazy": {t.Context(), math.MaxUint64, 1, false, 1024},
		"a call that has ended":              {ended, 1, 1, false, 0},
		"no highest":                         {t.Context(), 0, 1, false, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tries := 0
			id, size, err := onlyBtrfsDevice(tc.ctx, tc.highest, func(dev []byte) error {
				tries++
				if tries > 10000 {
					t.Fatal("the search does not end")
				}
				if binary.NativeEndian.Uint64(dev) != tc.only {
					return unix.ENODEV
				}
				binary.NativeEndian.PutUint64(dev[32:], 7)
				return nil
			})
			if (err == nil) != tc.ok || tries > tc.maxTries || tc.ok && (id != tc.only || size != 7) {
				t.Errorf("onlyBtrfsDevice(%d) = %d, %d, %v after %d tries, want %d: %v within %d", tc.highest, id, size, err, tries, tc.only, tc.ok, tc.maxTries)
			}
			if tc.ctx == ended && !errors.Is(err, context.Canceled) {
				t.Errorf("onlyBtrfsDevice of an ended call = %v", err)
			}
		})
	}
}
