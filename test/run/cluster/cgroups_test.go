package main

import (
	"slices"
	"strings"
	"testing"
)

func TestParseHierarchies(t *testing.T) {
	for _, test := range []struct {
		name, mounts string
		want         []string // arguments of scripts/cgroups.sh
		problem      string
	}{
		{
			name: "version 1 with a version 2 mount beside it",
			mounts: `tmpfs /sys/fs/cgroup tmpfs rw,relatime 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,nodev,noexec,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/devices cgroup rw,relatime,devices 0 0
cgroup /sys/fs/cgroup/pids cgroup rw,relatime,pids 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,release_agent=/lib/agent,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
`,
			want: []string{"cpu,cpuacct=cpu,cpuacct", "memory=memory", "devices=devices", "pids=pids", "systemd=none,name=systemd"},
		},
		{
			name: "mounted again in a container",
			mounts: `cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup /sys/fs/cgroup/devices cgroup rw,devices 0 0
cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0
`,
			want: []string{"memory=memory", "devices=devices", "pids=pids", "cpu=cpu"},
		},
		{
			name:   "version 2 alone",
			mounts: "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nsdelegate 0 0\n",
			want:   []string{"v2"},
		},
		{
			name:    "a controller is missing",
			mounts:  "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n",
			problem: "the cpu controller",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			all, err := parseHierarchies(test.mounts)
			if test.problem != "" {
				if err == nil || !strings.Contains(err.Error(), test.problem) {
					t.Errorf("parseHierarchies = %v, want a problem with %q", err, test.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := mountArguments(all); !slices.Equal(got, test.want) {
				t.Errorf("mountArguments = %q, want %q", got, test.want)
			}
		})
	}
}
