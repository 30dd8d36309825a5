//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// pools are the nodes' own disks, seen through the controller beside each of them.
type pools struct {
	driver     driver
	controller kube.Container
	pool       string
}

func findPools(d driver) (store, error) {
	for _, w := range d.workloads {
		for _, c := range w.Spec.Template.Spec.Containers {
			if strings.Contains(c.Image, "cloudblock-csi/controller") {
				for _, e := range c.Env {
					if e.Name == "CLOUDBLOCK_FLAG_LOCAL_POOL" {
						return pools{driver: d, controller: c, pool: e.Value}, nil
					}
				}
				return nil, errors.New("the controller's container has no setting LOCAL_POOL")
			}
		}
	}
	return nil, errors.New("nothing runs the driver's controller")
}

// flagOf reads a flag from a container's command line.
func flagOf(c kube.Container, name string) string {
	words := append(slices.Clone(c.Command), c.Args...)
	for i, w := range words {
		if value, ok := strings.CutPrefix(w, name+"="); ok {
			return value
		}
		if w == name && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}

// entry is a line of `cloudblock-controller volumes --output json`.
type entry struct {
	ID, State, Problem, File string
	PVCNamespace             string
	SnapshotOf               string
	InUse                    bool
}

// entries lists what is in the pools of all nodes, or fails: a pool that is not seen is not empty.
func (p pools) entries(ctx context.Context) ([]entry, error) {
	pods, err := p.driver.allReady(ctx)
	if err != nil {
		return nil, err
	}
	program := "/cloudblock-controller"
	if len(p.controller.Command) > 0 {
		program = p.controller.Command[0]
	}
	var all []entry
	for _, pod := range pods {
		text, err := p.driver.ExecArgs(ctx, pod.Metadata.Name, p.controller.Name, program,
			"volumes", "--cloud", "local", "--local-pool", p.pool, "--output", "json")
		if err != nil {
			return nil, err
		}
		var some []entry
		if err := json.Unmarshal([]byte(text), &some); err != nil {
			return nil, fmt.Errorf("read the pool of %s: %w", pod.Spec.NodeName, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

func (p pools) look(ctx context.Context) (held []thing, wrong []string, err error) {
	entries, err := p.entries(ctx)
	if err != nil {
		return nil, nil, err
	}
	bound, err := loops(func(file string) bool { return strings.HasPrefix(file, p.pool+"/") })
	if err != nil {
		return nil, nil, err
	}
	files := map[string]bool{}
	for _, x := range entries {
		id := x.ID[strings.LastIndex(x.ID, "/")+1:]
		files[strings.TrimPrefix(id, "snap-")+".img"] = true
		words := fmt.Sprintf("pool entry %s %s %s (state %s, claim's namespace %s)", x.ID, x.File, x.Problem, x.State, x.PVCNamespace)
		held = append(held, thing{x.ID, words})
		if x.Problem != "" {
			wrong = append(wrong, words)
		}
	}
	for loop, file := range bound {
		if !files[filepath.Base(file)] {
			wrong = append(wrong, loop+" bound to "+file)
		}
	}
	return held, wrong, nil
}

// loops returns the loop devices that are bound to files that are wanted, and those files. The
// cluster's nodes share the machine's devices.
func loops(wanted func(file string) bool) (map[string]string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err != nil {
			continue // detached between the two looks
		}
		if path := strings.TrimSpace(string(backing)); wanted(path) {
			found["/dev/"+filepath.Base(filepath.Dir(filepath.Dir(file)))] = path
		}
	}
	return found, nil
}
