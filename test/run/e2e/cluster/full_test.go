//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// rejected is the reason that the kubelet gives to a pod whose volume found no slot.
const rejected = "VolumeAttachmentLimitExceeded"

// podLeavesFullMachine: a machine has no slot left, which the scheduler does not know. The pod that it sends there fails
// instead of waiting for ever, and the next one of its Deployment runs on the other node.
func (s *story) podLeavesFullMachine(ctx context.Context) (err error) {
	s.wantTwoNodes()
	full, attached, err := s.fullest(ctx)
	if err != nil {
		return err
	}
	other := s.env.otherThan(full)
	class := s.env.classes["ext4"]
	if err := s.Create(ctx, list(claimWith("last", class), on(full, podWith("last", "true")))); err != nil {
		return err
	}
	if _, err := s.UntilReady(ctx, "last", patience); err != nil {
		return err
	}
	return s.under(ctx, "volumes_per_droplet", attached+1, 0, func() (err error) {
		cleanup := context.WithoutCancel(ctx)
		if _, err := s.Run(ctx, "cordon", other); err != nil {
			return err
		}
		defer func() {
			_, uncordoned := s.Run(cleanup, "uncordon", other)
			_, untainted := s.Run(cleanup, "taint", "node", full, "full:PreferNoSchedule-")
			err = errors.Join(err, uncordoned, untainted,
				s.Delete(cleanup, "deployment", "leaving"), s.Delete(cleanup, "pod", "last"), s.Delete(cleanup, "pvc", "leaving", "last"))
		}()
		if _, err := s.Run(ctx, "taint", "node", full, "full=:PreferNoSchedule"); err != nil {
			return err
		}
		if err := s.Create(ctx, list(claimWith("leaving", class), deploymentWith("leaving"))); err != nil {
			return err
		}
		if err := s.untilPod(ctx, "leaving", "is sent to the full node", func(p kube.Pod) bool { return p.Spec.NodeName == full }); err != nil {
			return err
		}
		start := time.Now()
		if _, err := s.Run(ctx, "uncordon", other); err != nil {
			return err
		}
		if err := s.untilPod(ctx, "leaving", "fails", func(p kube.Pod) bool { return p.Status.Reason == rejected }); err != nil {
			return err
		}
		s.Log("the kubelet of the full node rejected the pod after %.0f s", time.Since(start).Seconds())
		err = s.untilPod(ctx, "leaving", "runs on the other node", func(p kube.Pod) bool { return p.Ready() && p.Spec.NodeName == other })
		s.Log("the next pod runs on the other node after %.0f s", time.Since(start).Seconds())
		return err
	})
}

// fullest returns the node that has the most volumes, and their number.
func (s *story) fullest(ctx context.Context) (node string, attached int, err error) {
	all, err := kube.List[kube.Attachment](ctx, s.Client, "volumeattachments")
	if err != nil {
		return "", 0, err
	}
	counts := map[string]int{}
	for _, a := range all {
		counts[a.Spec.NodeName]++
	}
	for _, name := range s.env.nodes {
		if node == "" || counts[name] > counts[node] {
			node = name
		}
	}
	return node, counts[node], nil
}

// untilPod waits until one of a Deployment's pods is as wanted.
func (s *story) untilPod(ctx context.Context, app, what string, wanted func(kube.Pod) bool) error {
	return s.Until(ctx, "a pod of "+app+" "+what, patience, func(ctx context.Context) (bool, string, error) {
		pods, err := kube.List[kube.Pod](ctx, s.Client, "pods", "--selector", "app="+app)
		state := "no pod"
		for i, p := range pods {
			if wanted(p) {
				return true, "", err
			}
			state = fmt.Sprintf("%d of %d on %s: %s", i+1, len(pods), p.Spec.NodeName, p.State())
		}
		return false, state, err
	})
}

// claimWith returns a small claim of a class.
func claimWith(name, class string) map[string]any {
	return newClaim(claimOptions{name: name, class: class, size: 64 * mib})
}

// podWith returns a pod with the claim of its name, which runs a script and then nothing until it is deleted.
func podWith(name, script string) map[string]any {
	pod := newPod(name, name, "")
	pod["metadata"].(map[string]any)["labels"] = map[string]string{"app": name}
	mainOf(pod)["command"] = []string{"sh", "-c", script + "; trap exit TERM; while :; do sleep 3600 & wait; done"}
	return pod
}

// deploymentWith returns a Deployment of one such pod.
func deploymentWith(name string) map[string]any {
	pod := podWith(name, "true")
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"replicas": 1, "selector": map[string]any{"matchLabels": map[string]string{"app": name}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]string{"app": name}}, "spec": pod["spec"]},
		},
	}
}

func list(items ...any) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
}
