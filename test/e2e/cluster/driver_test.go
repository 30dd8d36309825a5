//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/e2e/cluster/kube"
)

// driver is the driver's DaemonSet, in its namespace.
type driver struct {
	kube.Client
	set        kube.DaemonSet
	controller kube.Container
	pool       string
}

// findDriver looks for the DaemonSet that runs the project's controller.
func findDriver(ctx context.Context, c kube.Client) (driver, error) {
	sets, err := kube.List[kube.DaemonSet](ctx, c, "daemonsets", "--all-namespaces")
	if err != nil {
		return driver{}, err
	}
	for _, set := range sets {
		for _, container := range set.Spec.Template.Spec.Containers {
			if strings.Contains(container.Image, "cloudblock-csi/controller") {
				d := driver{Client: c.In(set.Metadata.Namespace), set: set, controller: container, pool: flagOf(container, "--local-pool")}
				if d.pool == "" {
					return d, errors.New("the controller's container has no --local-pool")
				}
				return d, nil
			}
		}
	}
	return driver{}, fmt.Errorf("none of %d DaemonSets runs the driver's controller", len(sets))
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

func (d driver) pods(ctx context.Context) ([]kube.Pod, error) {
	return kube.List[kube.Pod](ctx, d.Client, "pods", "--selector", d.set.Selector())
}

// entry is a line of `cloudblock-controller volumes --output json`.
type entry struct {
	ID, State, Problem, File string
	PVCNamespace             string
	SnapshotOf               string
	InUse                    bool
}

// entries lists what is in the pools of all nodes, or fails: a pool that is not seen is not empty.
func (d driver) entries(ctx context.Context) ([]entry, error) {
	pods, err := d.pods(ctx)
	if err != nil {
		return nil, err
	}
	if len(pods) != d.set.Status.DesiredNumberScheduled {
		return nil, fmt.Errorf("the driver has %d pods, want %d", len(pods), d.set.Status.DesiredNumberScheduled)
	}
	program := "/cloudblock-controller"
	if len(d.controller.Command) > 0 {
		program = d.controller.Command[0]
	}
	var all []entry
	for _, p := range pods {
		if !p.Ready() {
			return nil, fmt.Errorf("the driver's pod on %s is not ready: %s", p.Spec.NodeName, p.State())
		}
		text, err := d.ExecArgs(ctx, p.Metadata.Name, d.controller.Name, program,
			"volumes", "--cloud", "local", "--local-pool", d.pool, "--output", "json")
		if err != nil {
			return nil, err
		}
		var some []entry
		if err := json.Unmarshal([]byte(text), &some); err != nil {
			return nil, fmt.Errorf("read the pool of %s: %w", p.Spec.NodeName, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// leftOvers names what is in the pools, or bound to a loop device, and belongs to no object of the
// cluster.
func (e *env) leftOvers(ctx context.Context) ([]string, error) {
	entries, err := e.driver.entries(ctx)
	if err != nil {
		return nil, err
	}
	known, err := e.handles(ctx)
	if err != nil {
		return nil, err
	}
	loops, err := e.driver.loops()
	if err != nil {
		return nil, err
	}
	var left []string
	files := map[string]bool{}
	for _, x := range entries {
		id := x.ID[strings.LastIndex(x.ID, "/")+1:]
		files[strings.TrimPrefix(id, "snap-")+".img"] = true
		if !known[x.ID] || x.Problem != "" {
			left = append(left, fmt.Sprintf("pool entry %s %s %s (state %s, claim's namespace %s)", x.ID, x.File, x.Problem, x.State, x.PVCNamespace))
		}
	}
	for loop, file := range loops {
		if !files[filepath.Base(file)] {
			left = append(left, loop+" bound to "+file)
		}
	}
	return left, nil
}

// handles returns the ids of all volumes and snapshots that the cluster knows.
func (e *env) handles(ctx context.Context) (map[string]bool, error) {
	volumes, err := kube.List[kube.Volume](ctx, e.Client, "pv")
	if err != nil {
		return nil, err
	}
	contents, err := kube.List[kube.SnapshotContent](ctx, e.Client, "volumesnapshotcontents")
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, v := range volumes {
		if v.Spec.CSI != nil && v.Spec.CSI.Driver == driverName {
			known[v.Spec.CSI.VolumeHandle] = true
		}
	}
	for _, c := range contents {
		known[c.Status.SnapshotHandle] = true
	}
	return known, nil
}

// loops returns the loop devices that are bound to files of the pools, and those files. The cluster's
// nodes share the machine's devices.
func (d driver) loops() (map[string]string, error) {
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
		if path := strings.TrimSpace(string(backing)); strings.HasPrefix(path, d.pool+"/") {
			found["/dev/"+filepath.Base(filepath.Dir(filepath.Dir(file)))] = path
		}
	}
	return found, nil
}

// saboteur deletes the driver's pods while something is under way.
type saboteur struct {
	driver driver
	random *rand.Rand
	// force leaves the programs no time to end, and makes new pods start beside the old ones.
	force bool
}

// strike waits a moment, deletes all pods of the driver and waits until others have taken their place.
func (s saboteur) strike(ctx context.Context, after time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(after):
	}
	old, err := s.driver.pods(ctx)
	if err != nil {
		return err
	}
	args := []string{"pods", "--selector", s.driver.set.Selector()}
	if s.force {
		args = append(args, "--grace-period=0", "--force")
	}
	if err := s.driver.Delete(ctx, args...); err != nil {
		return err
	}
	return s.driver.Until(ctx, "the driver's pods are back", patience, func(ctx context.Context) (bool, string, error) {
		pods, err := s.driver.pods(ctx)
		ready, state := 0, ""
		for _, p := range pods {
			switch isOld := func(o kube.Pod) bool { return o.Metadata.UID == p.Metadata.UID }; {
			case slices.ContainsFunc(old, isOld):
				state += p.Metadata.Name + " is still there; "
			case p.Ready():
				ready++
			default:
				state += p.Metadata.Name + " " + p.State() + "; "
			}
		}
		return state == "" && ready == len(old), state, err
	})
}

// moment picks one within the time that a step usually takes.
func (s saboteur) moment(usual time.Duration) time.Duration {
	return time.Duration(s.random.Float64() * 0.9 * float64(usual))
}
