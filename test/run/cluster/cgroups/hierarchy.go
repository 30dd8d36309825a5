// Package cgroups gives each machine of a cluster a cgroup in whatever hierarchies the kernel has mounted, finds what runs in
// it and removes it.
package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	cgroupMount = "/sys/fs/cgroup"
	// groupName is the one cgroup that holds everything of the cluster, in every hierarchy.
	groupName = "cloudblock-cluster"
)

// JoinScript moves the process that runs it into the cgroup of a machine, its first argument, and becomes the command in the others.
// Version 1 has a folder per hierarchy; in version 2 only a leaf may hold processes.
const JoinScript = `
for group in ` + cgroupMount + `/*/` + groupName + `/"$1" ` + cgroupMount + `/` + groupName + `/"$1"; do
	if [ -d "$group/init" ]; then group=$group/init; fi
	if [ -e "$group/cgroup.procs" ]; then echo 0 >"$group/cgroup.procs"; fi
done
shift
exec "$@"`

// Hierarchy is one mounted tree of cgroups: all of them together in version 2, else one of many.
type Hierarchy struct {
	folder  string // where it is mounted
	options string // what mounts it again; empty in version 2
}

// Hierarchies finds what the kernel has mounted. Version 2 counts only when it is alone: beside
// version 1 it holds no controllers that a kubelet needs.
func Hierarchies() ([]Hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	return parseHierarchies(string(mounts))
}

func parseHierarchies(mounts string) ([]Hierarchy, error) {
	var found []Hierarchy
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		folder, kind := fields[1], fields[2]
		switch {
		case kind == "cgroup2" && folder == cgroupMount:
			return []Hierarchy{{folder: folder}}, nil
		case kind == "cgroup" && filepath.Dir(folder) == cgroupMount:
			// A later mount hides an earlier one at the same place.
			found = slices.DeleteFunc(found, func(h Hierarchy) bool { return h.folder == folder })
			found = append(found, Hierarchy{folder: folder, options: v1Options(fields[3])})
		}
	}
	for _, needed := range []string{"cpu", "memory", "devices", "pids"} {
		if !slices.ContainsFunc(found, func(h Hierarchy) bool {
			return slices.Contains(strings.Split(h.options, ","), needed)
		}) {
			return nil, fmt.Errorf("no cgroup hierarchy with the %s controller is mounted below %s", needed, cgroupMount)
		}
	}
	return found, nil
}

// v1Options keeps the options that name a hierarchy: its controllers, or its name if it has none.
func v1Options(options string) string {
	var kept []string
	for option := range strings.SplitSeq(options, ",") {
		switch {
		case strings.HasPrefix(option, "name="):
			return "none," + option
		case slices.Contains([]string{"rw", "nosuid", "nodev", "noexec", "relatime", "clone_children"}, option),
			strings.Contains(option, "="):
		default:
			kept = append(kept, option)
		}
	}
	return strings.Join(kept, ",")
}

// V2 reports whether they are version 2, which has one hierarchy.
func V2(all []Hierarchy) bool { return len(all) == 1 && all[0].options == "" }

// MountArguments are those of scripts/cgroups.sh, which mounts all of them inside a machine.
func MountArguments(all []Hierarchy) []string {
	if V2(all) {
		return []string{"v2"}
	}
	var args []string
	for _, h := range all {
		args = append(args, filepath.Base(h.folder)+"="+h.options)
	}
	return args
}

// Make makes the cgroup of one machine in every hierarchy.
func Make(all []Hierarchy, machine string) error {
	for _, h := range all {
		parent := h.folder
		for _, name := range []string{groupName, machine} {
			if V2(all) {
				if err := delegate(parent); err != nil {
					return err
				}
			}
			group := filepath.Join(parent, name)
			if err := os.MkdirAll(group, 0o755); err != nil {
				return err
			}
			if err := inheritCPUs(parent, group); err != nil {
				return err
			}
			parent = group
		}
	}
	return nil
}

// inheritCPUs: a new group of the cpuset hierarchy has neither processors nor memory, and takes no
// process before it has both.
func inheritCPUs(parent, group string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) || strings.TrimSpace(string(value)) == "" {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(group, file), value, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// delegate lets the children of a version 2 group have every controller that it has itself.
func delegate(group string) error {
	controllers, err := os.ReadFile(filepath.Join(group, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("give the children of %s the %s controller: %w", group, controller, err)
		}
	}
	return nil
}

// Settle moves a machine's first processes into a leaf of its version 2 cgroup, so that the group
// itself can have controllers for the pods' groups beside the leaf.
func Settle(h Hierarchy, machine string) error {
	group := filepath.Join(h.folder, groupName, machine)
	leaf := filepath.Join(group, "init")
	if err := os.MkdirAll(leaf, 0o755); err != nil {
		return err
	}
	listed, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, pid := range strings.Fields(string(listed)) {
		if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(pid), 0o644); ignoreGone(err) != nil {
			return err
		}
	}
	return delegate(group)
}

// Processes lists the ids of all processes in a machine's cgroup, of its pods, too, or for "" in the whole cluster's, sorted.
func Processes(all []Hierarchy, machine string) ([]int, error) {
	var found []int
	for _, h := range all {
		err := filepath.WalkDir(filepath.Join(h.folder, groupName, machine), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return ignoreGone(err)
			}
			listed, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			for _, field := range strings.Fields(string(listed)) {
				if pid, bad := strconv.Atoi(field); bad == nil && pid > 0 {
					found = append(found, pid)
				}
			}
			return ignoreGone(err)
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// Remove removes the cluster's cgroups; EBUSY means that a process has not quite ended.
func Remove(all []Hierarchy) error {
	for _, h := range all {
		var groups []string
		err := filepath.WalkDir(filepath.Join(h.folder, groupName), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				groups = append(groups, path)
			}
			return ignoreGone(err)
		})
		if err != nil {
			return err
		}
		for _, group := range slices.Backward(groups) {
			if err := os.Remove(group); ignoreGone(err) != nil {
				return err
			}
		}
	}
	return nil
}

// ignoreGone: cgroups and processes end while one looks at them.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}
