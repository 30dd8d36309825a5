package driver

import (
	"reflect"
	"testing"
)

func TestPoolsOfTheFlags(t *testing.T) {
	tests := map[string]struct {
		values []string
		want   []LocalPool
	}{
		"one without a name":         {[]string{"/var/lib/pool"}, []LocalPool{{Dir: "/var/lib/pool"}}},
		"a folder with a sign":       {[]string{"/a=b"}, []LocalPool{{Dir: "/a=b"}}},
		"a name and such a folder":   {[]string{"fast=/a=b"}, []LocalPool{{Name: "fast", Dir: "/a=b"}}},
		"names only":                 {[]string{"fast=/f", "slow=/s"}, []LocalPool{{Name: "fast", Dir: "/f"}, {Name: "slow", Dir: "/s"}}},
		"a volume group":             {[]string{"lvm:vg-1"}, []LocalPool{{Dir: "lvm:vg-1"}}},
		"a name and a volume group":  {[]string{"fast=lvm:vg", "slow=lvm:other"}, []LocalPool{{Name: "fast", Dir: "lvm:vg"}, {Name: "slow", Dir: "lvm:other"}}},
		"next to one without a name": {[]string{"fast=/f", "/s"}, []LocalPool{{Name: "fast", Dir: "/f"}, {Dir: "/s"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseLocalPools(tc.values, func(string) error { return nil })
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("ParseLocalPools(%q) = %+v, %v, want %+v", tc.values, got, err, tc.want)
			}
		})
	}
}
