package main

import (
	"fmt"
	"os"
	"path/filepath"
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
