package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// layout says where everything is. All of it is below the cache folder, outside the clone.
type layout struct {
	cache   string // images made for the clusters live here, too
	project string // the clone
	// kubernetes is the wanted release ("1.36"); "": the newest one that is here.
	kubernetes string
}

// findLayout takes the folder that holds go.mod, this one or one above it, for the project.
func findLayout() (layout, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return layout{}, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return layout{}, err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "test/run/cluster/kubernetes/go.mod")); err == nil {
			return layout{cache: filepath.Join(cache, "cloudblock-csi"), project: dir, kubernetes: os.Getenv("KUBERNETES")}, nil
		}
		if dir == filepath.Dir(dir) {
			return layout{}, fmt.Errorf("run this inside a clone of the project: no test/run/cluster is here or above")
		}
		dir = filepath.Dir(dir)
	}
}

func (l layout) cluster(parts ...string) string {
	return filepath.Join(append([]string{l.cache, "cluster"}, parts...)...)
}

func (l layout) bin(name string) string      { return l.cluster("bin", name) }
func (l layout) logs(parts ...string) string { return l.cluster(append([]string{"logs"}, parts...)...) }
func (l layout) run(parts ...string) string  { return l.cluster(append([]string{"run"}, parts...)...) }
func (l layout) kubeconfig() string          { return l.cluster("kubeconfig") }
func (l layout) state() string               { return l.run("state.json") }
func (l layout) pool(node string) string     { return l.run(node, "pool.img") }
func (l layout) source(parts ...string) string {
	return filepath.Join(append([]string{l.project}, parts...)...)
}

// newest reports whether the cluster has what only the newest release has (1.37: the health of volumes, a node affinity of volumes that
// can be changed, and pods that wait for the driver of their volumes).
func (l layout) newest() bool { return l.kubernetes == "" }

// inside is where a machine sees what is at cluster(parts...) outside: each has the cluster's folder
// at one place, wherever the cache is.
func inside(parts ...string) string {
	return filepath.Join(append([]string{"/run/cluster"}, parts...)...)
}

// state is what one run of this program leaves for the next one.
type state struct {
	Cloud string `json:"cloud"`
	Nodes int    `json:"nodes"`
	// Kubernetes is the release that was asked for, as in layout.
	Kubernetes string    `json:"kubernetes,omitempty"`
	Complete   bool      `json:"complete"` // `up` came to its end
	Machines   []machine `json:"machines"`
	Emulator   *process  `json:"emulator,omitempty"` // of the cloud, where it has one
	// Imported are the archives of images that all nodes have, each with a stamp of what was in it.
	Imported map[string]string `json:"imported,omitempty"`
}

// readState is the running cluster's state, or an empty one.
func readState(l layout) (state, error) {
	var s state
	text, err := os.ReadFile(l.state())
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: %w", l.state(), err)
	}
	return s, nil
}

func (s state) save(l layout) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(l.state()), 0o755); err != nil {
		return err
	}
	next := l.state() + ".new"
	if err := os.WriteFile(next, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(next, l.state())
}

// running: all machines are alive, and the cloud.
func (s state) running() bool {
	return s.Complete && (s.Emulator == nil || s.Emulator.alive()) && !slices.ContainsFunc(s.Machines, func(m machine) bool { return !m.alive() })
}

func (s state) machine(name string) (machine, bool) {
	i := slices.IndexFunc(s.Machines, func(m machine) bool { return m.Name == name })
	if i < 0 {
		return machine{}, false
	}
	return s.Machines[i], true
}

// lock keeps two runs from changing the cluster at once; it ends with this program.
func lock(l layout) (*os.File, error) {
	if err := os.MkdirAll(l.cluster(), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(l.cluster("lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("another run of this program is at work on the cluster (%s): %w", l.cluster(), err)
	}
	return file, nil
}
