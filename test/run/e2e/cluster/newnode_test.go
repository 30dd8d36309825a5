//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// heldBackFor is how long pods must stay away from a node without the driver after the first refusal: by then Kubernetes has
// tried again.
const heldBackFor = 20 * time.Second

// P4: a node whose driver does not run yet gets no pod that needs the driver, neither one with a new claim nor one
// with a volume that exists. The pods run there once the driver is registered; no taint has to be removed. On local, a
// volume that exists is on its node, which is then not new.
//
// Up to Kubernetes 1.36 the missing label of the topology holds the pods back. From 1.37 on, with preventPodSchedulingIfMissing,
// the label stays, as on a node whose driver was removed, and the scheduler has to refuse because the driver is missing.
func TestNewNode(t *testing.T) {
	s := begin(t, "new-node")
	ctx := t.Context()
	s.wantTwoNodes()
	node, other, class := s.env.nodes[1], s.env.nodes[0], s.env.classes["ext4"]
	objects := []any{claimWith("fresh", class), on(node, podWith("fresh", "true"))}
	waiting := []string{"fresh"}
	if !s.env.nodeBound {
		must(t, s.writtenOnce(ctx, other))
		objects = append(objects, on(node, podWith("kept", "true")))
		waiting = append(waiting, "kept")
	}
	t.Cleanup(func() {
		if err := s.Delete(context.WithoutCancel(ctx), "pod", "--all"); err != nil {
			t.Error(err)
		}
	})
	driver, err := kube.Get[kube.CSIDriver](ctx, s.Client, "csidriver", s.env.place.driver)
	must(t, err)
	required := driver.Spec.PreventPodSchedulingIfMissing
	t.Logf("preventPodSchedulingIfMissing: %t", required)
	giveBack, err := s.withoutDriver(ctx, node, other)
	if err == nil && !required {
		_, err = s.Run(ctx, "label", "node", node, s.env.topologyKey+"-")
	}
	if err != nil {
		t.Fatal(errors.Join(err, giveBack()))
	}
	err = s.Create(ctx, list(objects...))
	if err == nil {
		err = s.heldBack(ctx, waiting, required)
	}
	start := time.Now()
	must(t, errors.Join(err, giveBack()))
	t.Logf("the driver is registered on %s %.0f s after it was admitted", node, time.Since(start).Seconds())
	for _, name := range waiting {
		p, err := s.UntilReady(ctx, name, patience)
		if err == nil && name == "kept" {
			err = s.wantData(ctx, p, s.sums["kept"])
		}
		must(t, err)
		t.Logf("pod %s runs on %s after %.0f s", name, p.Spec.NodeName, time.Since(start).Seconds())
	}
}

// on sends a pod to a node.
func on(node string, pod map[string]any) map[string]any {
	pod["spec"].(map[string]any)["nodeSelector"] = map[string]string{hostname: node}
	return pod
}

// writtenOnce makes the volume kept, with data in it, and leaves it without a pod.
func (s *story) writtenOnce(ctx context.Context, node string) error {
	if err := s.Create(ctx, list(claimWith("kept", s.env.classes["ext4"]), on(node, podWith("kept", "true")))); err != nil {
		return err
	}
	p, err := s.UntilReady(ctx, "kept", patience)
	if err == nil {
		err = s.write(ctx, p)
	}
	if err == nil {
		err = s.end(ctx, "kept")
	}
	return err
}

// withoutDriver removes the driver from a node, and waits until nothing is registered there. giveBack, which is never nil,
// admits the driver again and waits for it.
func (s *story) withoutDriver(ctx context.Context, node, other string) (giveBack func() error, err error) {
	programs := s.env.driver
	i := slices.IndexFunc(programs.workloads, func(w kube.Workload) bool { return w.Kind == "DaemonSet" })
	if i < 0 {
		return func() error { return nil }, errors.New("the driver has no DaemonSet")
	}
	name := programs.workloads[i].Metadata.Name
	selector := func(ctx context.Context, value string) error {
		patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:%s}}}}}`, hostname, value)
		_, err := programs.Run(ctx, "patch", "daemonset", name, "--type", "merge", "--patch", patch)
		return err
	}
	giveBack = func() error {
		ctx := context.WithoutCancel(ctx)
		return errors.Join(selector(ctx, "null"), s.registered(ctx, node, true), s.untilDriverReady(ctx))
	}
	if err := selector(ctx, fmt.Sprintf("%q", other)); err != nil {
		return giveBack, err
	}
	return giveBack, s.registered(ctx, node, false)
}

// registered waits until the kubelet of a node has the driver, or has not.
func (s *story) registered(ctx context.Context, node string, wanted bool) error {
	return s.Until(ctx, fmt.Sprintf("the driver is registered on %s: %t", node, wanted), patience, func(ctx context.Context) (bool, string, error) {
		n, err := kube.Get[kube.CSINode](ctx, s.Client, "csinode", node)
		return n.Has(s.env.place.driver) == wanted, "", err
	})
}

// heldBack waits until an event says of each pod or its claim that it is refused, and then some more. required: the event is
// the scheduler's and names the missing driver.
func (s *story) heldBack(ctx context.Context, pods []string, required bool) error {
	for _, name := range pods {
		said, err := s.UntilEvent(ctx, name, patience, func(e kube.Event) bool {
			if required {
				return e.Reason == "FailedScheduling" && strings.Contains(e.Message, s.env.place.driver+" CSI driver is not installed")
			}
			return e.InvolvedObject.Kind == "Pod" && e.Reason == "FailedScheduling" ||
				e.InvolvedObject.Kind == "PersistentVolumeClaim" && e.Reason == "ProvisioningFailed"
		})
		if err != nil {
			return err
		}
		s.Log("pod %s is held back: %s", name, said.Message)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(heldBackFor):
	}
	for _, name := range pods {
		p, err := kube.Get[kube.Pod](ctx, s.Client, "pod", name)
		if err == nil && p.Spec.NodeName != "" {
			err = fmt.Errorf("pod %s was sent to %s, where the driver is not registered", name, p.Spec.NodeName)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
