package driver

import (
	"testing"
	"testing/fstest"
)

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
