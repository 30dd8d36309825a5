package main

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

// hierarchy is one mounted tree of cgroups: all of them together in version 2, else one of many.
type hierarchy struct {
	folder  string // where it is mounted
	options string // what mounts it again; empty in version 2
}

// hierarchies finds what the kernel has mounted. Version 2 counts only when it is alone: beside
// version 1 it holds no controllers that a kubelet needs.
func hierarchies() ([]hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	return parseHierarchies(string(mounts))
}

func parseHierarchies(mounts string) ([]hierarchy, error) {
	var found []hierarchy
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		folder, kind := fields[1], fields[2]
		switch {
		case kind == "cgroup2" && folder == cgroupMount:
			return []hierarchy{{folder: folder}}, nil
		case kind == "cgroup" && filepath.Dir(folder) == cgroupMount:
			// A later mount hides an earlier one at the same place.
			found = slices.DeleteFunc(found, func(h hierarchy) bool { return h.folder == folder })
			found = append(found, hierarchy{folder: folder, options: v1Options(fields[3])})
		}
	}
	for _, needed := range []string{"cpu", "memory", "devices", "pids"} {
		if !slices.ContainsFunc(found, func(h hierarchy) bool {
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

func isV2(all []hierarchy) bool { return len(all) == 1 && all[0].options == "" }

// mountArguments are for scripts/cgroups.sh.
func mountArguments(all []hierarchy) []string {
	if isV2(all) {
		return []string{"v2"}
	}
	var args []string
	for _, h := range all {
		args = append(args, filepath.Base(h.folder)+"="+h.options)
	}
	return args
}

// makeGroup makes the cgroup of one machine in every hierarchy.
func makeGroup(all []hierarchy, machine string) error {
	for _, h := range all {
		parent := h.folder
		for _, name := range []string{groupName, machine} {
			if isV2(all) {
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

// processesOf lists every process in the cluster's cgroups or one machine's, of all pods, too.
func processesOf(all []hierarchy, machine string) ([]int, error) {
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

// removeGroups removes the cluster's cgroups; EBUSY means that a process has not quite ended.
func removeGroups(all []hierarchy) error {
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
