package controller

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestSizeWithin(t *testing.T) {
	const g = int64(cloud.GiB)
	caps := cloud.Capabilities{SizeStep: cloud.GiB, SmallestVolume: 2 * cloud.GiB, LargestVolume: 16 * cloud.GiB}
	tests := map[string]struct {
		required, limit int64
		absent          bool
		want            int64
		kind            fault.Kind
		says            string
	}{
		"no range is the preferred size":                          {absent: true, want: 10 * g},
		"a size that is a step":                                   {required: 5 * g, want: 5 * g},
		"one byte more is rounded up":                             {required: 5*g + 1, want: 6 * g},
		"one byte less is rounded up":                             {required: 5*g - 1, want: 5 * g},
		"one byte is the smallest":                                {required: 1, want: 2 * g},
		"the largest":                                             {required: 16 * g, want: 16 * g},
		"rounding up to the largest":                              {required: 16*g - 1, want: 16 * g},
		"one byte above the largest":                              {required: 16*g + 1, kind: fault.OutOfRange, says: "required_bytes"},
		"the largest int64":                                       {required: math.MaxInt64, kind: fault.OutOfRange, says: "required_bytes"},
		"the last step below overflow":                            {required: math.MaxInt64 - g, kind: fault.OutOfRange, says: "required_bytes"},
		"one byte below the largest int64":                        {required: math.MaxInt64 - 1, kind: fault.OutOfRange, says: "required_bytes"},
		"the smallest int64":                                      {required: math.MinInt64, kind: fault.InvalidArgument, says: "required_bytes"},
		"a negative limit":                                        {required: g, limit: -1, kind: fault.InvalidArgument, says: "limit_bytes"},
		"neither":                                                 {kind: fault.InvalidArgument, says: "capacity_range: neither"},
		"a limit equal to the size":                               {required: 5 * g, limit: 5 * g, want: 5 * g},
		"a limit below the size":                                  {required: 5 * g, limit: 5*g - 1, kind: fault.OutOfRange, says: "limit_bytes"},
		"a limit that the rounding passes":                        {required: 5*g + 1, limit: 6*g - 1, kind: fault.OutOfRange, says: "limit_bytes"},
		"a limit that the rounding just meets":                    {required: 5*g + 1, limit: 6 * g, want: 6 * g},
		"a limit below the smallest":                              {required: 1, limit: 2*g - 1, kind: fault.OutOfRange, says: "limit_bytes"},
		"only a limit, above the preferred size":                  {limit: 12 * g, want: 10 * g},
		"only a limit, below the preferred size, is rounded down": {limit: 5*g + 1, want: 5 * g},
		"only a limit, below the smallest":                        {limit: 2*g - 1, kind: fault.OutOfRange, says: "limit_bytes"},
		"only a limit, at the smallest":                           {limit: 2 * g, want: 2 * g},
		"a limit above the largest leaves the size as it is":      {required: 3 * g, limit: math.MaxInt64, want: 3 * g},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := &csi.CapacityRange{RequiredBytes: tc.required, LimitBytes: tc.limit}
			if tc.absent {
				r = nil
			}
			got, err := sizeWithin(r, 10*cloud.GiB, caps)
			if int64(got) != tc.want || fault.Of(err) != tc.kind || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("sizeWithin(%v) = %d, %v, want %d, %q saying %q", r, got, err, tc.want, tc.kind, tc.says)
			}
		})
	}
}

func FuzzSizeWithin(f *testing.F) {
	f.Add(int64(1), int64(0), int64(1<<30), int64(1<<30), int64(1<<40))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(1<<30), int64(1), int64(math.MaxInt64))
	f.Add(int64(0), int64(3), int64(2), int64(1), int64(9))
	f.Fuzz(func(t *testing.T, required, limit, step, smallest, largest int64) {
		if step < 1 || smallest < 1 || largest < smallest {
			return // no cloud has such bounds
		}
		caps := cloud.Capabilities{SizeStep: cloud.Bytes(step), SmallestVolume: cloud.Bytes(smallest), LargestVolume: cloud.Bytes(largest)}
		got, err := sizeWithin(&csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}, cloud.Bytes(smallest), caps)
		size := int64(got)
		switch {
		case err != nil && !errors.Is(err, fault.InvalidArgument) && !errors.Is(err, fault.OutOfRange):
			t.Errorf("the error %v has a wrong kind", err)
		case err != nil:
		case required < 0 || limit < 0 || required == 0 && limit == 0:
			t.Errorf("accepted %d to %d", required, limit)
		case size < required || limit > 0 && size > limit || size%step != 0 || size < smallest || size > largest:
			t.Errorf("%d for %d to %d (step %d, bounds %d to %d)", size, required, limit, step, smallest, largest)
		case required > 0 && size-step >= max(required, smallest):
			t.Errorf("%d for %d is more than needed (step %d, smallest %d)", size, required, step, smallest)
		}
	})
}
