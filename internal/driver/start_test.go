package driver

import (
	"reflect"
	"testing"
	"testing/fstest"
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

func TestTheMemoryOfAContainer(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, tc := range map[string]struct {
		files fstest.MapFS
		want  int64
	}{
		"version 2":                        {fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("268435456\n")}, 256 << 20},
		"version 2, below":                 {fstest.MapFS{"proc/self/cgroup": file("0::/a/b\n"), "sys/fs/cgroup/a/b/memory.max": file("1048576\n")}, 1 << 20},
		"version 2, without a limit":       {fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("max\n")}, 0},
		"version 1":                        {fstest.MapFS{"proc/self/cgroup": file("9:cpu:/\n4:memory:/kubepods/x\n"), "sys/fs/cgroup/memory/memory.limit_in_bytes": file("268435456\n")}, 256 << 20},
		"version 1, without a limit":       {fstest.MapFS{"proc/self/cgroup": file("4:memory:/\n"), "sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n")}, 0},
		"version 1, with a host's version": {fstest.MapFS{"proc/self/cgroup": file("4:memory:/\n0::/\n"), "sys/fs/cgroup/memory/memory.limit_in_bytes": file("268435456\n")}, 256 << 20},
		"no cgroups":                       {fstest.MapFS{}, 0},
		"text that is none":                {fstest.MapFS{"proc/self/cgroup": file("x\n::\n0::/\n"), "sys/fs/cgroup/memory.max": file("-1\n")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cgroupMemory(tc.files); got != tc.want {
				t.Errorf("cgroupMemory = %d, want %d", got, tc.want)
			}
		})
	}
}
