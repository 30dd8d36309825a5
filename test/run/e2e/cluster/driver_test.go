//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/compat"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// driver is what runs the driver's programs, in its namespace.
type driver struct {
	kube.Client
	workloads []kube.Workload
}

// findDriver looks for what runs the project's programs for a cloud.
func findDriver(ctx context.Context, c kube.Client, cloud string) (driver, error) {
	all, err := kube.List[kube.Workload](ctx, c, "daemonsets,deployments", "--all-namespaces")
	if err != nil {
		return driver{}, err
	}
	var d driver
	for _, w := range all {
		if slices.ContainsFunc(w.Spec.Template.Spec.Containers, func(c kube.Container) bool {
			return ours(c) && flagOf(c, "--cloud") == cloud
		}) {
			d.Client = c.In(w.Metadata.Namespace)
			d.workloads = append(d.workloads, w)
		}
	}
	if len(d.workloads) == 0 {
		return d, fmt.Errorf("none of %d DaemonSets and Deployments runs the driver with --cloud=%s", len(all), cloud)
	}
	return d, nil
}

// ours says whether a container runs one of the project's programs.
func ours(c kube.Container) bool { return strings.Contains(c.Image, "cloudblock-csi/") }

// pods are those that are to stay. Of a Deployment there are others, too: a sidecar that does not lead
// ends when it is killed (docs/contributing/decisions/deployment.md, 15), and nobody waits for that.
func (d driver) pods(ctx context.Context) ([]kube.Pod, error) {
	var all []kube.Pod
	for _, w := range d.workloads {
		some, err := d.podsOf(ctx, w)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// podsOf are those of one workload.
func (d driver) podsOf(ctx context.Context, w kube.Workload) ([]kube.Pod, error) {
	pods, err := kube.List[kube.Pod](ctx, d.Client, "pods", "--selector", w.Selector())
	return slices.DeleteFunc(pods, func(p kube.Pod) bool { return p.Metadata.DeletionTimestamp != nil }), err
}

// allReady returns the driver's pods, or an error if one is missing or not ready.
func (d driver) allReady(ctx context.Context) ([]kube.Pod, error) {
	pods, err := d.pods(ctx)
	if err != nil {
		return nil, err
	}
	wanted := 0
	for _, w := range d.workloads {
		wanted += w.Wanted()
	}
	if len(pods) != wanted {
		return nil, fmt.Errorf("the driver has %d pods, want %d", len(pods), wanted)
	}
	for _, p := range pods {
		if !p.Ready() {
			return nil, fmt.Errorf("the driver's pod on %s is not ready: %s", p.Spec.NodeName, p.State())
		}
	}
	return pods, nil
}

// untilDriverReady waits until the driver's pods are ready.
func (s *story) untilDriverReady(ctx context.Context) error {
	return s.Until(ctx, "the driver's pods are ready", patience, func(ctx context.Context) (bool, string, error) {
		_, err := s.env.driver.allReady(ctx)
		return err == nil, "", err
	})
}

// leftOvers names what is where the volumes are and belongs to no object of the cluster.
func (e *env) leftOvers(ctx context.Context) ([]string, error) {
	held, left, err := e.store.look(ctx)
	if err != nil {
		return nil, err
	}
	known, err := e.handles(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range held {
		if !known[h.id] {
			left = append(left, h.words)
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
		if v.Spec.CSI != nil && v.Spec.CSI.Driver == e.place.driver {
			known[compat.ID(e.cloud, v.Spec.CSI.VolumeHandle)] = true
		}
	}
	for _, c := range contents {
		known[c.Status.SnapshotHandle] = true
	}
	return known, nil
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
	for _, w := range s.driver.workloads {
		args := []string{"pods", "--selector", w.Selector()}
		if s.force {
			args = append(args, "--grace-period=0", "--force")
		}
		if err := s.driver.Delete(ctx, args...); err != nil {
			return err
		}
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
