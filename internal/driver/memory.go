package driver

import (
	"io/fs"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryShare is how many percent of its container's memory the heap takes before it is collected as hard as possible. The rest
// is for stacks, the program itself and what the kernel keeps for it.
const memoryShare = 80

// LimitMemory makes Go's runtime know how much memory the container has, which it does not find out by itself. Without a limit
// nothing changes.
func LimitMemory() {
	if limit := cgroupMemory(os.DirFS("/")); limit > 0 {
		debug.SetMemoryLimit(limit / 100 * memoryShare)
	}
}

// cgroupMemory returns how many bytes the cgroup of this process may have, or 0 if nothing limits it. A container has its own
// cgroup's files at the root of the mount, whatever /proc/self/cgroup calls it (cgroups(7)).
func cgroupMemory(root fs.FS) int64 {
	list, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(list)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		if parts[1] == "memory" {
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if parts[1] != "" {
			continue
		}
		for _, folder := range []string{parts[2], "/"} {
			text, err := fs.ReadFile(root, path.Join(mount, folder, file))
			if err != nil {
				continue
			}
			limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && limit > 0 && limit < 1<<60 { // version 1 has a large number for none, version 2 the word max
				return limit
			}
			break
		}
	}
	return 0
}
